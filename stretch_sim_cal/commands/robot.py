"""`stretch-sim-cal robot init`: a robot's profile, written from its description, with a list of open questions; and
`robot calibrate`, which is `ros_calibrate_robot`."""

import argparse
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.collection.plan import Plan, Skipped, plan_of_robot
from stretch_sim_cal.collection.settings import load_settings
from stretch_sim_cal.command import show
from stretch_sim_cal.commands import calibrate_robot, described, schema
from stretch_sim_cal.commands.robot_guess import MARGIN, Choice, Guess, guess_profile, rounded
from stretch_sim_cal.conventions.normal_form import read_description
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import yaml_text
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

EXAMPLE = "stretch-sim-cal robot init my_robot.urdf --out my_robot.yaml"
WORLD = "empty_hall"  # in which it is seen what the lidars see of the robot
SHOWN, SHOWN_FROM = 5, 0.005  # links, and the share of a lidar's rays from which one is shown
IN_THE_WAY = 0.1  # share of a lidar's rays that the stowed arm may take without a word
TRIED, AROUND, MOUNT_STEP = 60, 12, 0.4  # random poses; those that a grid is laid around, with steps of m, rad
ENOUGH = 0.8  # share of a plan's poses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    about = "write a robot's profile from its description"
    init = actions.add_parser("init", help=about, description=f"{about.capitalize()}.", epilog=f"example: {EXAMPLE}")
    add = init.add_argument
    add("description", type=Path, metavar="FILE", help="URDF, xacro or SDF of the robot")
    add("--out", type=Path, metavar="FILE", help="output file (default: NAME.yaml beside the description)")
    add("--sensor", metavar="NAME", help="kind of the lidars: a name in config/, or a sensor file")
    add("--left", metavar="LINK", help="frame of the left (or front) lidar")
    add("--right", metavar="LINK", help="frame of the right (or rear) lidar")
    described.add_words(init, "--lidar", "LINK", "frames of further lidars")
    described.add_package_argument(init)
    described.add_words(init, "--arg", "NAME=VALUE", "arguments of a xacro")
    add("--json", action="store_true", help="print the findings as JSON")
    init.set_defaults(act=init_profile)
    whole = "calibrate this robot in one command, as ros_calibrate_robot does"
    calibrate = actions.add_parser(
        "calibrate", help=whole, description=f"{whole.capitalize()}.", epilog="example: stretch-sim-cal robot calibrate"
    )
    calibrate_robot.add_arguments(calibrate)
    calibrate.set_defaults(act=calibrate_robot.run)


def run(args: argparse.Namespace) -> int:
    return args.act(args)


def init_profile(args: argparse.Namespace) -> int:
    """Write the profile, print findings and open questions; return 1 if the user has to complete it first."""
    packages, arguments = described.package_folders(args.package), described.assignments(args.arg, "--arg")
    given = read_description(args.description, arguments, packages)
    described.check_packages(args.package, given.packages)
    out = args.out or args.description.with_name(f"{args.description.name.split('.')[0]}.yaml")
    if out.exists():
        raise InputError(f"{out}: exists already; name another file with --out, or remove it")
    guess = guess_profile(given, args.left, args.right, args.sensor, args.lidar)

    def relative(path: str | Path) -> str:  # the profile's reader resolves links in its own path
        return os.path.relpath(Path(path).expanduser().resolve(), out.parent.resolve())

    used = {name: relative(folder) for name, folder in packages.items() if name in given.packages}
    source: dict = {"file": relative(args.description)}
    source |= {"arguments": arguments} if arguments else {}
    source |= {"packages": used} if used else {}
    guess.data = {"name": guess.data["name"], "description": source} | guess.data
    files.write_text(out, _text(guess))
    problem = ""
    try:
        spawned_robot(named_robot(out))
    except (InputError, Refused) as error:  # the user has to complete it first
        problem = str(error)
        guess.open.append(problem)
    else:
        _look(out, guess)
        files.write_text(out, _text(guess))
    lines = [*guess.found, *(f"open: {line}" for line in guess.open), f"wrote {out}"]
    lines += [] if problem else [f"next: stretch-sim-cal run furnished_room_sparse --robot {out}"]
    show(args, {"file": str(out), "found": guess.found, "open": guess.open, "usable": not problem}, lines)
    return 1 if problem else 0


def _look(out: Path, guess: Guess) -> None:
    """Choose the stowed pose and the plans by what can be reached, and add what the lidars see of the stowed robot."""
    setup = SimulationSetup.from_mapping({"robot": str(out.resolve()), "world": WORLD}, str(out))
    profile, model = setup.profile, setup.robot.model
    collision = None
    if profile.planned:
        floor = float(link_transform(model, {}, profile.footprint_frame)[2, 3])
        collision = SelfCollision(model, MARGIN, floor, still=profile.still_joints(model))
        chosen = _reachable(guess.choices, profile, model, collision)
        guess.data |= {"stow": [chosen.stow], "plans": chosen.plans}
        if chosen.narrowed:
            guess.open.append(f"plans: narrowed, so that parts do not touch: {', '.join(chosen.narrowed)}")
        profile = _posed(profile, chosen)
    simulator = EmbeddedSimulator(setup)
    simulator.joints.place(profile.stowed)
    for side in profile.lidars:
        seen = {link: share for link, share in simulator.view(side).items() if share >= SHOWN_FROM}
        links = ", ".join(f"{link} {100 * share:.0f} %" for link, share in list(seen.items())[:SHOWN])
        guess.found.append(f"stowed, the {side} lidar sees these parts of the robot: {links or 'nothing'}")
        arm = {link: share for link, share in seen.items() if link in simulator.geometry.moved}
        if sum(arm.values()) > IN_THE_WAY:
            guess.open.append(
                f"stow: the arm hides a part of the {side} lidar's view, which an alignment needs: "
                + ", ".join(f"{link} takes {100 * share:.0f} % of its rays" for link, share in arm.items())
            )
    if collision is None:
        return
    grids = _in_view(simulator, profile, model, collision)
    if grids:
        guess.data["plans"] = guess.data["plans"] | {"mounts": grids}
        guess.data["mount_candidates"] = grids
        profile = replace(profile, plans=guess.data["plans"])
    for name in profile.plans:
        plan = _plan(name, profile, model, collision)
        poses = len(plan.visits) + len(plan.skipped)
        said = f"{name}: {len(plan.visits)} of {poses} poses can be reached from the stowed one"
        if _share(plan) < ENOUGH:
            guess.open.append(f"plans: {said}: {plan.skipped[0].reason}")
        else:
            guess.found.append(f"plan {said}")


def _posed(profile: RobotProfile, choice: Choice) -> RobotProfile:
    stow = {profile.commands[name]: value for name, value in choice.stow.items()}
    return replace(profile, stow=(stow,), plans=choice.plans)


def _plan(name: str, profile: RobotProfile, model: RobotModel, collision: SelfCollision) -> Plan:
    """Return the tour from the stowed pose over a plan of the profile; if none of it can be reached, all is skipped."""
    settings = load_settings("body_shape", name, {}, 1.0, profile.commanded_limits(model), None, profile)
    start = tuple(profile.stowed[profile.commands[joint]] for joint in profile.planned_names)
    try:
        return plan_of_robot(model, settings, profile, start, collision=collision)
    except Refused as problem:
        grid = itertools.product(*(settings.grids[joint] for joint in profile.planned_names))
        return Plan(start, skipped=[Skipped(pose, str(problem)) for pose in grid])


def _share(plan: Plan) -> float:
    return len(plan.visits) / (len(plan.visits) + len(plan.skipped))


def _reachable(choices: Sequence[Choice], profile: RobotProfile, model: RobotModel, collision: SelfCollision) -> Choice:
    """Return the first choice of which enough poses of every plan can be reached, else the one with the most."""
    shares: list[float] = []
    for choice in choices:
        posed = _posed(profile, choice)
        shares.append(min(_share(_plan(name, posed, model, collision)) for name in choice.plans))
        if shares[-1] >= ENOUGH:
            break
    return choices[int(np.argmax(shares))]


def _in_view(
    simulator: EmbeddedSimulator, profile: RobotProfile, model: RobotModel, collision: SelfCollision
) -> dict[str, list[float]]:
    """Return a grid by joint around the random pose in which the lidars see most of the moving links, of those grids
    that can be reached from the stowed pose; none if they see none of these."""
    limits = profile.commanded_limits(model)
    ranges = {name: (limits[command].lower, limits[command].upper) for name, command in profile.commands.items()}

    def positions(pose: Mapping[str, float]) -> dict[str, float]:
        return {profile.commands[name]: value for name, value in pose.items()}

    def is_free(pose: Mapping[str, float]) -> bool:
        return collision.is_free(profile.joint_positions(model, positions(pose)))

    def seen(pose: Mapping[str, float]) -> float:
        """How much of each link each lidar sees; repeated views of a link count less."""
        simulator.joints.place(positions(pose))
        views = [simulator.view(side) for side in profile.lidars]
        return sum(np.sqrt(view.get(link, 0.0)) for view in views for link in simulator.geometry.moved)

    random = np.random.default_rng(0)
    tried = ({name: float(random.uniform(*ends)) for name, ends in ranges.items()} for _ in range(TRIED))
    found = sorted(((seen(pose), n, pose) for n, pose in enumerate(filter(is_free, tried))), reverse=True)
    grids = []
    for value, _, pose in found[:AROUND]:
        pair = [*profile.shape_joints, *(name for name in ranges if name not in profile.shape_joints)][:2]
        grid = {name: [rounded(at, ranges[name])] for name, at in pose.items()}
        for name in pair:
            step, ends = MOUNT_STEP * min(1.0, np.ptp(ranges[name])), ranges[name]
            around = np.clip(pose[name] + step * np.arange(-1, 2), *ends)
            grid[name] = sorted({rounded(value, ends) for value in around})
        poses = [dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values())]
        free = [each for each in poses if is_free(each)]
        if value > 0 and len(free) >= ENOUGH * len(poses):
            grids.append((float(np.mean([seen(each) for each in free])), grid))
    for _, grid in sorted(grids, key=lambda each: each[0], reverse=True):
        if _share(_plan("mounts", replace(profile, plans={"mounts": grid}), model, collision)) >= ENOUGH:
            return grid
    return {}


def _text(guess: Guess) -> str:
    lines = [
        f"{schema.MODELINE}{schema.path_of('profile').as_uri()}",
        "# Written by stretch-sim-cal robot init; keys: docs/your_own_robot.md.",
        *(f"# OPEN: {line}" for line in guess.open),
    ]
    return "\n".join(lines) + "\n" + yaml_text(guess.data)
