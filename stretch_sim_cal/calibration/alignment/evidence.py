"""What speaks for and against an estimate of the lidars' poses, and its judgement: covariance, refusals, warnings."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stretch_sim_cal.calibration import findings
from stretch_sim_cal.calibration.alignment.joint_estimate import Leaning
from stretch_sim_cal.calibration.alignment.second_opinion import second_opinion
from stretch_sim_cal.calibration.alignment.ties import Pair, Ties
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, covariance_of_sectors, wrong_rotor_angles
from stretch_sim_cal.calibration.clouds import FrameIntake
from stretch_sim_cal.calibration.coarse import credible
from stretch_sim_cal.calibration.consistency import Consistency, View, Views, between
from stretch_sim_cal.calibration.finding import OF_ALL_PLACES, Finding
from stretch_sim_cal.calibration.motion import Motion
from stretch_sim_cal.calibration.observability import unobserved
from stretch_sim_cal.calibration.observations import by_poses
from stretch_sim_cal.calibration.problem import Unknowns, columns_of
from stretch_sim_cal.calibration.results import LidarPoses, SeenPair
from stretch_sim_cal.calibration.room import RoomBlock, scale_of
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.solver import LIKE_TURNS, SHARES_OF_SCANS, Solution, sensor_numbers
from stretch_sim_cal.calibration.surfaces import mirrored_surface
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse
from stretch_sim_cal.sensor.unit import CENTRE, RANGE_SCALE, SCALARS

# Residuals that are so many times larger than noise explains are of a model that does not fit.
POOR_FIT = 1.1
LIKELY_WAVES = 0.15  # of the standard deviation of waves of directions: half of the smallest that there are
# Changes of a cloud by a driver or a converter that are no rotation: y negated, x and y exchanged.
MIRRORS = (np.diag([1.0, -1.0, 1.0]), np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
# Codes under which the views may fit once one of them is mirrored.
MAYBE_MIRRORED = {"contradicting_views", "far_from_description", "swapped", "little_overlap"}
# Codes under which the views may fit once one of them is turned, or taken to be in base_link.
MAYBE_TURNED = {"contradicting_views", "far_from_description"}
# Possible errors of a driver's axes, or of a lidar's orientation in the description: axis and degrees.
TURNS = (("z", 90), ("z", -90), ("z", 180), ("x", 180), ("y", 180))
# The agreement of the views (-1 to 1) has to be higher than as described by this.
MUCH_BETTER = 0.1


@dataclass(frozen=True)
class PlaceEvidence:
    """The evidence of one standing place: the lidars' views, the patches at the estimate, and the motion."""

    views: tuple[View, ...]
    last: RoomBlock
    motion: Motion

    def of_pair(self, pair: Pair) -> Views:
        """Return the views of two lidars."""
        return Views(*(self.views[lidar] for lidar in pair))

    def mirrored(self, pair: Pair, initial: np.ndarray | None, names: Sequence[str]) -> tuple[str, ...]:
        """Return the `names` of the lidars of a pair, one or both, whose clouds agree with the other's under the
        description's transform (4, 4) once they are mirrored; none if they agree as they are, or without a
        description."""
        if initial is None or credible(self.of_pair(pair).under(initial)):
            return ()
        for turned in (pair[:1], pair[1:], pair):
            for mirror in MIRRORS:
                views = (
                    mirrored_surface(self.views[n].surface, mirror) if n in turned else self.views[n] for n in pair
                )
                if credible(Views(*views).under(initial)):
                    return tuple(names[lidar] for lidar in turned)
        return ()

    def in_other_axes(
        self, pair: Pair, initial: Sequence[np.ndarray | None], base_from_first: np.ndarray | None, turns: object = True
    ) -> tuple[Pair | tuple[int], tuple[str, int] | None] | None:
        """Return the lidars of a pair, one or both, whose clouds agree with the other's as described once they are
        changed, and the change: axis and degrees if `turns` are tried, or None if they are in base_link. None without
        a description, or if no change makes them agree. `initial` are the described poses (4, 4) in the first one's
        frame.

        Views in opposite directions may agree once one is turned, as in any room with parallel walls."""
        if any(initial[lidar] is None for lidar in pair):
            return None
        views, given = self.of_pair(pair), between(initial, pair)
        changes: dict[tuple[str, int] | None, list[np.ndarray]] = {
            (axis, turn): [from_xyz_rpy((0, 0, 0), np.radians(turn) * np.eye(3)["xyz".index(axis)])] * 2
            for axis, turn in TURNS if turns
        }  # fmt: skip
        if base_from_first is not None:
            changes[None] = [inverse(base_from_first @ initial[lidar]) for lidar in pair]
        tried = []
        for turned, (how, (first, second)) in itertools.product((pair[:1], pair[1:], pair), changes.items()):
            left = inverse(first) if pair[0] in turned else np.eye(4)
            right = second if pair[1] in turned else np.eye(4)
            tried.append((views.under(left @ given @ right), turned, how))
        if not tried:
            return None
        best, turned, how = max(tried, key=lambda each: each[0].score)
        enough = best.overlap >= findings.MIN_OVERLAP and best.score > views.under(given).score + MUCH_BETTER
        return (turned, how) if enough and credible(best, near=True) else None

    @property
    def moving(self) -> float:
        """The share of the views' cells through which something moved."""
        return float(np.mean(np.concatenate([view.surface.moving for view in self.views])))


@dataclass(frozen=True)
class Evidence:
    """The input of all checks: the evidence of every standing place, the ties between lidars, the description's poses,
    the solution of the estimate, the covariance of what is `hinging` on one place, the surfaces on which it is
    `leaning`, and the `coarse_covariance` if the estimate is the coarse one, since the patches contradict the views of
    `worse` pairs."""

    places: list[PlaceEvidence]
    ties: Ties
    initial: list[np.ndarray | None]
    names: Sequence[str]
    sensors: tuple
    solution: Solution
    unknowns: Unknowns
    hinging: np.ndarray | float = 0.0
    leaning: Sequence[Leaning] = ()
    coarse_covariance: np.ndarray | None = None
    worse: Sequence[Pair] = ()

    @property
    def blocks(self) -> list[RoomBlock]:
        """The patches at the estimate, by place."""
        return [place.last for place in self.places]

    @property
    def poses(self) -> tuple[np.ndarray, ...]:
        """The lidars' poses (4, 4) in the first one's frame."""
        return self.blocks[0].state.base_from_lidar

    @property
    def scale(self) -> float:
        """The scale of the gaps over their standard deviations; at least 1."""
        return scale_of(self.blocks)

    @property
    def rmse(self) -> float:
        """The root mean square gap (m) between the lidars' surfaces."""
        squares = np.concatenate([block.gaps.values[block.weights > 0] ** 2 for block in self.blocks])
        return float(np.sqrt(squares.mean())) if len(squares) else float("inf")

    @cached_property
    def covariance(self) -> np.ndarray:
        """The covariance of the poses: that of the model, plus those of the surfaces on which they lean."""
        return self._of_model + sum(np.outer(each.change, each.change) for each in self.leaning)

    @cached_property
    def _of_model(self) -> np.ndarray:
        """That of the solution, plus those of motion, of what hinges on one place, and of sectors of views that hardly
        overlap."""
        if self.coarse_covariance is not None:
            return self.coarse_covariance
        others = len(self.names) - 1
        moved = np.kron(np.eye(others), sum(place.motion.covariance for place in self.places) / len(self.places))
        sectors, against = covariance_of_sectors(self.poses, self._narrow), by_poses(np.eye(4), others)
        return self.of_solution + self.hinging + moved + against @ sectors @ against.T

    @cached_property
    def of_solution(self) -> np.ndarray:
        """The solution's covariance of the poses, with `inflation`, plus that of the unknown frames of clouds of
        unknown lidars."""
        frames = covariance_of_frames(self.poses, self.numbers, self.sensors, self.names)
        against = by_poses(np.eye(4), len(self.names) - 1)
        solution = self.solution.covariance_of(self.unknowns.free_poses)
        return solution * self.inflation**2 + against @ frames @ against.T

    @property
    def inflation(self) -> float:
        """The factor of the solution's standard deviations, by the gaps and by errors beyond the sensor files."""
        return self.scale * findings.beyond_sensor_files(self.numbers, self.sensors, self.names)

    def covariance_between(self, pair: Pair) -> np.ndarray:
        """Return the covariance (6, 6) of the second lidar's twist against the first one's, in the common frame."""
        change = np.zeros((6, 6 * len(self.names)))
        change[:, 6 * pair[0] : 6 * pair[0] + 6] = -np.eye(6)
        change[:, 6 * pair[1] : 6 * pair[1] + 6] = np.eye(6)
        return change[:, 6:] @ self.covariance @ change[:, 6:].T

    @cached_property
    def numbers(self) -> dict[str, float]:
        """The estimated errors of the lidars; empty for the coarse estimate."""
        if self.coarse_covariance is not None:
            return {}
        return sensor_numbers(self.unknowns, self.blocks[0].state, self.solution, self.names)

    @cached_property
    def agreement(self) -> list[dict[Pair, Consistency]]:
        """The agreement of the views of the pairs that tie the lidars under the estimate, by place."""
        return [
            {pair: place.of_pair(pair).under(between(self.poses, pair)) for pair in self.ties.pairs}
            for place in self.places
        ]

    @property
    def _narrow(self) -> list[int]:
        """The numbers of the lidars whose overlap with each of the others is narrow."""
        overlaps = [
            [views.overlap for place in self.agreement for pair, views in place.items() if lidar in pair]
            for lidar in range(len(self.names))
        ]
        return [lidar for lidar, shares in enumerate(overlaps) if shares and max(shares) < findings.NARROW_OVERLAP]

    def beyond_sensor_file(self, pair: Pair) -> bool:
        """Return whether one of two lidars has errors beyond its sensor file."""
        of_pair = tuple(self.sensors[lidar] for lidar in pair), [self.names[lidar] for lidar in pair]
        return any(each.code == "beyond_sensor_file" for each in findings.unit_warnings(self.numbers, *of_pair))

    @cached_property
    def opinions(self) -> list[dict[Pair, list[Finding]]]:
        """The findings if the registration of all cells of a pair contradicts the estimate, by place."""
        return [
            {pair: findings.another_opinion(second_opinion(place.last.surface, pair), self.covariance_between(pair))
             for pair in self.ties.pairs} for place in self.places
        ]  # fmt: skip

    def _differing(self, pair: Pair, scalar: int) -> tuple[float, float]:
        """Return by how much a scalar of the second lidar's errors is below the first one's, with standard
        deviation."""
        columns = [self.unknowns.units[lidar].start + scalar for lidar in pair]
        first, second = (self.blocks[0].state.units[lidar][scalar] for lidar in pair)
        covariance = self.solution.covariance[np.ix_(columns, columns)]
        variance = covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1]
        return float(first - second), float(np.sqrt(max(variance, 0.0)))

    def differing_units(self, pair: Pair) -> list[Finding]:
        """Return a finding if the ranges of two lidars differ by a larger share than their sensor files allow, and one
        if their beams pass the spin axes at distances that these files do not have."""
        if self.coarse_covariance is not None:
            return []
        spreads = [self.unknowns.models[lidar].spread for lidar in pair]
        allowed = float(np.hypot(*(spread.range_scale for spread in spreads)))
        differing = findings.differing_ranges(*self._differing(pair, RANGE_SCALE), allowed)
        if not any(spread.optical_centre[1] for spread in spreads):  # else that allows for it
            differing += findings.lateral_offsets(*self._differing(pair, CENTRE.start + 1))
        return differing

    def waves_of_directions(self) -> list[Finding]:
        """Return a finding if the data supports waves of the lidars' directions."""
        if self.coarse_covariance is not None:
            return []
        _, waves = self._of_every_lidar([model.of_waves for model in self.unknowns.models])
        sizes = {
            name: float(np.linalg.norm(own) / np.sqrt(2.0))
            for name, own, found in zip(self.names, waves, self.solution.relative_deviations, strict=True)
            if max(found.get(kind, 0.0) for kind in LIKE_TURNS) > LIKELY_WAVES
        }
        return findings.waves_of_directions(sizes)

    @cached_property
    def impossible_wander(self) -> list[Finding]:
        """Ranges that wander as no lidar's do, if the poses depend on it."""
        if self.coarse_covariance is not None:
            return []
        columns, wander = self._of_every_lidar([model.of_wander for model in self.unknowns.models])
        most = SHARES_OF_SCANS["wander"][0].max()
        roots = [model.scan_roots()["wander"][model.of_wander].diagonal() for model in self.unknowns.models]
        found = findings.impossible_wander(wander, [most * root for root in roots], self.names)
        return found if found and self._move_poses(columns.ravel(), wander.ravel(), 2.0) else []

    def impossible_units(self) -> list[Finding]:
        """Return the errors that no lidar of its kind has, motions in every scan of no robot that stands, and ranges
        that wander as no lidar's do, if the poses depend on them: an error that all lidars have alike may be the best
        fit to something near one of them, and cancels between them. If what they leave is larger than noise, too, they
        are the wrong explanation. Wander that no surface contradicts is a cover's, and explained."""
        if self.coarse_covariance is not None:
            return []
        values, units, models = self.blocks[0].state.units, self.unknowns.units, self.unknowns.models
        columns, motions = self._of_every_lidar([model.of_scan_motion for model in models])
        of_motions = self.solution.covariance[np.ix_(columns.ravel(), columns.ravel())]
        moving = findings.impossible_scan_motions(motions, of_motions, self.names)
        if moving and not self._move_poses(columns.ravel(), motions.ravel()):
            moving = []
        fits = self.scale < POOR_FIT
        moving += self.impossible_wander if self.leaning or not fits else []
        found = findings.impossible_units(self.numbers, self.sensors, self.names, fits)
        columns = [units[lidar].start + SCALARS.index(scalar) for lidar, scalar in found]
        errors = np.array([values[lidar][SCALARS.index(scalar)] for lidar, scalar in found])
        return moving + (list(found.values()) if found and (not fits or self._move_poses(columns, errors)) else [])

    def _of_every_lidar(self, parts: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns (n, k) and values (n, k) of these parts of the lidars' parameters."""
        columns = [columns_of(unit)[part] for unit, part in zip(self.unknowns.units, parts, strict=True)]
        values = [own[part] for own, part in zip(self.blocks[0].state.units, parts, strict=True)]
        return np.array(columns), np.array(values)

    def _move_poses(self, columns: Sequence[int], errors: np.ndarray, times: float = 1.0) -> bool:
        """Return whether the poses would change by more than their uncertainty if `errors` (k,) in these columns were
        known to be 0: by its square, so many `times`."""
        covariance, free = self.solution.covariance, self.unknowns.free_poses
        of_errors = np.linalg.pinv(covariance[np.ix_(columns, columns)], rcond=1e-12, hermitian=True)
        shift = covariance[np.ix_(free, columns)] @ of_errors @ errors
        return bool(shift @ np.linalg.solve(self._of_model, shift) >= times * len(shift))

    def near(self, pair: Pair) -> bool:
        """Return whether the estimate of two lidars is near the description."""
        return self.described(pair) is not None and not any(self.against_description(pair))

    def against_description(self, pair: Pair) -> tuple[list[Finding], list[Finding]]:
        """Return the refusals and warnings of the transform of two lidars against the description's."""
        names = [self.names[lidar] for lidar in pair]
        return findings.model_findings(self.described(pair), between(self.poses, pair), names)

    def described(self, pair: Pair) -> np.ndarray | None:
        """Return the description's transform (4, 4) between two lidars; None if it has none."""
        given = [self.initial[lidar] for lidar in pair]
        return None if any(pose is None for pose in given) else between(given, (0, 1))

    def wrong_minimum(self, place: int, pair: Pair) -> list[Finding]:
        """Return a finding if the views of two lidars at a place, by its number, contradict each other."""
        views, closely = self.places[place].of_pair(pair), None
        if self.described(pair) is not None and not self.against_description(pair)[0]:
            closely = views.under(between(self.poses, pair), leniency=findings.CLOSELY)
        return findings.wrong_minimum(self.agreement[place][pair], self.near(pair), closely)

    def refuting(self) -> list[Finding]:
        """Return the refusals beside which all others are meaningless: robot or scene moved, a transform is wrong, or
        two lidars see too little in common."""
        refusals = self.each(
            lambda n, _: findings.movement(self.places[n].motion, self.places[n].moving, self.blocks[n].num_used)
        )
        refusals += self.each(self.wrong_minimum, self.ties.pairs)
        if refusals or len(self.names) > len(SIDES):  # of more lidars others tie the two
            return refusals
        return self.each(
            lambda n, pair: findings.overlap_refusals(
                self.agreement[n][pair], self.blocks[n].used_between(pair), self.described(pair) is not None
            ),
            self.ties.pairs,
        )

    def unfit_pairs(self) -> dict[Pair, tuple[Consistency, list[Finding]]]:
        """Return the pairs that do not fit the joint estimate, with the agreement of their views and the reasons; only
        the `worse` ones if there are any, since the estimate is then the coarse one."""
        unfit = {}
        for pair in self.worse or self.ties.pairs:
            why = [findings.COARSE_ONLY] if pair in self.worse else []
            for number, (place, opinions) in enumerate(zip(self.places, self.opinions, strict=True)):
                why += self.wrong_minimum(number, pair)
                why += findings.overlap_refusals(self.agreement[number][pair], place.last.used_between(pair))
                why = why or opinions[pair]
            if why:
                unfit[pair] = self.agreement[0][pair], why
        return unfit

    def each(
        self, check: Callable[[int, Pair], list[Finding]], pairs: Sequence[Pair] = ((0, 0),), in_places: bool = True
    ) -> list[Finding]:
        """Return the findings of a check of every place, by its number, and of pairs of lidars: with the place if there
        are several, and with the lidars if there are more than two. A check that is not of single places is done once;
        one of no pair gets the first lidar twice."""
        result = []
        for number, pair in itertools.product(range(len(self.places) if in_places else 1), pairs):
            of_pair = "lidars " + " and ".join(self.names[lidar] for lidar in pair)
            for finding in check(number, pair):
                named = finding.at(of_pair) if len(self.names) > len(SIDES) and pair != (0, 0) else finding
                several = in_places and len(self.places) > 1
                result.append(named.at(f"standing place {number + 1}") if several else named)
        return result


def _seen_pairs(evidence: Evidence) -> list[SeenPair]:
    """Return the overlap of every two lidars, with refusals."""
    result, ties = [], evidence.ties
    for pair in itertools.combinations(range(len(evidence.names)), 2):
        if pair in ties.pairs:
            views, refusals = evidence.agreement[0][pair], []
        else:
            nothing = Consistency(0.0, 0.0, 0.0)
            views, refusals = ties.left_out.get(pair, (nothing, findings.overlap_refusals(nothing, 0.0)))
        result.append(SeenPair((evidence.names[pair[0]], evidence.names[pair[1]]), views.overlap, refusals))
    return result


def checked(evidence: Evidence, intake: FrameIntake, settings: AlignmentSettings) -> LidarPoses:
    """Return the result with its covariance and its findings."""
    blocks, scale, covariance, numbers = evidence.blocks, evidence.scale, evidence.covariance, evidence.numbers
    places, names, poses, agreement = evidence.places, evidence.names, evidence.poses, evidence.agreement
    pairs, each, disturbed = evidence.ties.pairs, evidence.each, max(place.moving for place in places)
    against_first = [(0, lidar) for lidar in range(1, len(names)) if lidar in evidence.ties.tied]
    directions = {
        pair: settings.directions(evidence.covariance_between(pair), settings.base_from_left) for pair in against_first
    }
    described = {pair: evidence.against_description(pair) for pair in against_first}
    refusals = evidence.refuting()
    differing = each(lambda _, pair: evidence.differing_units(pair), pairs, in_places=False)
    undetermined = each(lambda _, pair: unobserved(directions[pair]), against_first, in_places=False)
    of_units = findings.unit_warnings(numbers, evidence.sensors, names) + evidence.waves_of_directions()
    leaning = findings.leaning(evidence.leaning, names)
    if not refusals and evidence.coarse_covariance is not None:
        refusals = [findings.COARSE_ONLY, *undetermined]
    elif not refusals:
        # Unknown range scales, errors beyond the sensor files, and surfaces that contradict the rest leave the lidars'
        # poses undetermined. One surface may contradict the rest because of an error that no lidar has.
        why = [finding for finding in of_units if finding.code == "beyond_sensor_file"]
        why = evidence.impossible_units() + leaning + why if leaning and undetermined else why
        refusals = differing + why + undetermined if undetermined else each(
            lambda _, pair: findings.little_support(blocks, covariance, settings, pair[1]), against_first, False
        )  # fmt: skip
        refusals += findings.large_residuals(scale, evidence.rmse)
        others = [(0, lidar) for lidar in range(1, len(names))]
        refusals += each(lambda n, pair: findings.dissenting(blocks[n], pair[1]), others)
    # A refused estimate is no reason to doubt the model, but mirrored clouds are one to refuse any.
    refusals = refusals or findings.distorted(wrong_rotor_angles(poses, numbers, names)) + evidence.impossible_units()
    narrow = {
        pair: findings.narrow_overlap(
            max(views[pair].overlap for views in agreement), evidence.described(pair), between(poses, pair),
            evidence.beyond_sensor_file(pair),
        ) for pair in pairs
    }  # fmt: skip
    far = each(lambda _, pair: described[pair][0], against_first, in_places=False)
    far += each(lambda _, pair: narrow[pair][0], pairs, in_places=False)
    near = each(lambda _, pair: described[pair][1], against_first, in_places=False)
    near += each(lambda _, pair: narrow[pair][1], pairs, in_places=False)
    near = ([] if refusals else near) + differing
    if {finding.code for finding in refusals} <= set(OF_ALL_PLACES):  # another place would not cure exchanged topics
        refusals = [finding for finding in far if finding.code == "swapped"] or refusals
    refusals = refusals or far or each(lambda n, pair: evidence.opinions[n][pair], pairs)
    if MAYBE_MIRRORED & {finding.code for finding in [*refusals, *far]} or evidence.ties.left_out:
        tried = [*evidence.ties.pairs, *evidence.ties.left_out]
        mirrored = [places[0].mirrored(pair, evidence.described(pair), names) for pair in tried]
        refusals = list(dict.fromkeys(itertools.chain.from_iterable(map(findings.mirrored, mirrored)))) or refusals
    left_out = {pair: reasons for pair, (_, reasons) in evidence.ties.left_out.items()}
    untied = [pair for pair in itertools.combinations(range(len(names)), 2) if not set(pair) <= evidence.ties.tied]
    suspects = {pair: left_out.get(pair, []) for pair in untied} or dict.fromkeys(pairs, [*refusals, *far])
    changed = [
        places[0].in_other_axes(
            pair, evidence.initial, settings.base_from_left, MAYBE_TURNED & {finding.code for finding in reasons}
        ) for pair, reasons in suspects.items() if untied or MAYBE_TURNED & {finding.code for finding in reasons}
    ]  # fmt: skip
    refusals = list(dict.fromkeys(
        finding for change in changed if change is not None
        for finding in findings.in_other_axes([names[lidar] for lidar in change[0]], change[1])
    )) or refusals  # fmt: skip
    first, of_poses = blocks[0], np.zeros((6 * len(names), 6 * len(names)))
    of_poses[6:, 6:] = covariance
    return LidarPoses(
        dict(zip(names, poses, strict=True)), of_poses, _seen_pairs(evidence), intake.num_frames, evidence.rmse,
        directions=directions.get((0, 1), []),
        warnings=[
            *intake.warnings(), *findings.single_scan(intake.num_frames, len(places)), *near,
            *findings.disturbance(disturbed),
            *([] if refusals else each(lambda n, pair: findings.changed_scene(agreement[n][pair]), pairs)),
            *(finding for finding in leaning + of_units + evidence.impossible_wander if finding not in refusals),
            *findings.noisy_ranges(first.noise.sigma, evidence.sensors, names),
        ],
        refusals=refusals,
        diagnostics={
            "patches": sum(len(block.flat[0].centres) / block.grids for block in blocks),
            "patches_used": sum(block.num_used for block in blocks), "places": len(blocks),
            **{f"range_noise_{name}": float(sigma) for name, sigma in zip(names, first.noise.sigma, strict=True)},
            "roughness": float(first.noise.roughness), "channels_by_surface": float(first.noise.of_channels),
            "gap_scale": scale,
            "agree": min((float(view.agree) for views in agreement for view in views.values()), default=0.0),
            "contradict": max((float(view.contradict) for views in agreement for view in views.values()), default=0.0),
            "motion": max(place.motion.translation for place in places),
            "motion_rotation": max(place.motion.rotation for place in places), "disturbed": disturbed,
        } | numbers,
    )  # fmt: skip
