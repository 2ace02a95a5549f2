"""A live 3D view of a calibration with Rerun: in its viewer, in a file, or for a browser elsewhere. Lengths in m;
`stage` and `pose` are the timelines."""

import atexit
import contextlib
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import writing

APPLICATION = "stretch_sim_cal"
# Of the lidars, the left one first; of pages, too.
LIDARS = ((31, 111, 180), (224, 123, 0), (42, 138, 74), (138, 63, 160), (140, 90, 43), (15, 140, 140))
RETURNS, FIT = (150, 150, 150), (194, 24, 43)
ZONE, ROBOT, REJECTED = (220, 90, 90), (170, 175, 185), (60, 60, 60)
DRAWN = 60_000  # points of a cloud; more is slow in a browser and shows nothing more
SHOWN = 0.01  # m, where the scale of residuals ends
RADIUS = 0.006
LIVE_EVERY = 0.5  # s
LOOPBACK = "127.0.0.1"
SERVER_START = 30.0  # s
EYE, TARGET = (-3.2, -3.4, 2.6), (0.0, 0.0, 0.6)  # m: the viewer's first eye point and target
STAGES = ("described", "alignment", "floor", "mounts", "body_shape")


def opened(options: Any) -> "View | None":
    """Return the view that `options` ask for (`view`, `view_file`, `view_port`, `view_host`), None without any. A port
    is served on the address of the host, by default to this machine only. Raises `InputError` if Rerun is not
    installed, the file cannot be written, or the port is taken."""
    file, port, host = options.view_file, options.view_port, options.view_host
    if host and not port:
        raise InputError("--view-host applies only to --view-port")
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"--view-port: is {port}; expected a port from 1 to 65535")
    if not (options.view or file or port):
        return None
    try:
        import rerun
    except ImportError as error:
        install = "pip install 'stretch_sim_cal[view]' (or rerun-sdk)"
        raise InputError(f"--view, --view-file and --view-port need Rerun: {install}") from error
    if file:
        with writing(f"--view-file {file}"):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).touch()
    return View(rerun, options.view, file, (host or LOOPBACK, port) if port else None)


class View:
    """A recording in Rerun. Coordinates are in base_link, but for floor and body shape: those are in base_footprint."""

    def __init__(self, rerun: Any, view: bool, file: str | Path | None, served: tuple[str, int] | None):
        self._rerun, self._server, self._stages = rerun, None, list(STAGES)
        self._recording, self._live = rerun.RecordingStream(APPLICATION), 0
        sinks: list[Any] = []
        if file:
            sinks.append(rerun.FileSink(str(file)))
        if served is not None:
            self._server, url = _server(*served)
            sinks.append(rerun.GrpcSink(url))
        if view:
            rerun.spawn(connect=False)
            sinks.append(rerun.GrpcSink())
        if sinks:
            self._recording.set_sinks(*sinks)
        self._recording.send_blueprint(_blueprint(rerun))
        self._log("world", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)

    def stage(self, name: str) -> None:
        if name not in self._stages:
            self._stages.append(name)
        self._recording.set_time("stage", sequence=self._stages.index(name))
        self.say(name)

    def say(self, text: str, level: str = "INFO") -> None:
        self._log("log", self._rerun.TextLog(text, level=level))

    def clouds(self, when: str, clouds: Mapping[str, np.ndarray]) -> None:
        """Show clouds (N, 3) by lidar, `when`: "before" or "after", and all but the first by distance from that."""
        gaps = self._by_residual(when, clouds)
        if len(gaps):
            self.series(f"gap_{when}_mm", 1e3 * float(np.sqrt(np.mean(gaps**2))))

    def _by_residual(self, when: str, clouds: Mapping[str, np.ndarray]) -> np.ndarray:
        drawn = {name: thinned(points) for name, points in clouds.items()}
        for (name, points), colour in zip(drawn.items(), itertools.cycle(LIDARS)):
            self._points(f"world/{when}/by_lidar/{name}", points, colour)
        first, *others = drawn.values()
        places, gaps = residuals(first, np.concatenate([first[:0], *others]))
        self._points(f"world/{when}/by_residual", places, coloured(gaps))
        return gaps

    def patches(self, places: np.ndarray, gaps: np.ndarray, verdicts: Sequence[str]) -> None:
        """Show patches at `places` (P, 3): those that count by their `gaps` (P,) in m (NaN: unknown), the others in one
        colour; the label of each is its verdict."""
        texts = np.array([f"{verdict}; residual {1e3 * gap:+.1f} mm" if np.isfinite(gap) else verdict
                         for verdict, gap in zip(verdicts, gaps, strict=True)])  # fmt: skip
        kept = np.array([verdict == "counts" for verdict in verdicts], dtype=bool)
        rejected = np.tile(np.uint8(REJECTED), (len(kept), 1))
        for name, chosen, colours in (("counting", kept, coloured(np.nan_to_num(gaps))), ("rejected", ~kept, rejected)):
            labels = {"labels": list(texts[chosen]), "show_labels": False}
            points = places[chosen].astype(np.float32)
            self._points(f"world/patches/{name}", points, colours[chosen], 4 * RADIUS, **labels)

    def floor(self, points: np.ndarray, base_from_footprint: np.ndarray) -> None:
        """Show the returns (N, 3) from the floor, in base_footprint, by their height over the fitted one."""
        near = thinned(points[(np.abs(points[:, 2]) < 0.03) & (np.hypot(points[:, 0], points[:, 1]) < 5.0)])
        self.place("world/footprint", base_from_footprint)
        self._points("world/footprint/floor", near, coloured(near[:, 2]))

    def place(self, path: str, parent_from_child: np.ndarray) -> None:
        self._log(path, self._rerun.Transform3D(translation=parent_from_child[:3, 3], mat3x3=parent_from_child[:3, :3]))

    def robot(self, surfaces: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Show the robot's links: vertices (V, 3) and faces (F, 3) by link, in link frames; `pose` places them."""
        for link, (vertices, faces) in surfaces.items():
            mesh = self._rerun.Mesh3D(vertex_positions=vertices, triangle_indices=faces, albedo_factor=ROBOT)
            self._log(f"world/robot/{link}", mesh, static=True)

    def pose(self, number: int, base_from_link: Mapping[str, np.ndarray]) -> None:
        """Move the robot's links: pose `number` of a collection, each (4, 4)."""
        self._recording.set_time("pose", sequence=number)
        for link, pose in base_from_link.items():
            self.place(f"world/robot/{link}", pose)

    def body(self, points: np.ndarray, minimum: np.ndarray, outer: np.ndarray) -> None:
        """Show the returns (N, 3) of an arm pose without the floor's, and the outlines (K, 2) of the fitted shape and
        of the stop zone, in base_footprint."""
        self._points("world/footprint/returns", thinned(points[points[:, 2] > 0.05]), RETURNS, RADIUS / 2)
        for name, outline, colour in (("shape", minimum, FIT), ("stop_zone", outer, ZONE)):
            ring = np.column_stack([np.vstack([outline, outline[:1]]), np.full(len(outline) + 1, 0.01)])
            self._log(f"world/footprint/{name}", self._rerun.LineStrips3D([ring], colors=colour, radii=0.006))

    def live(self, stamp: int, clouds: Mapping[str, np.ndarray], marked: np.ndarray | None = None) -> None:
        """Show clouds (N, 3) by lidar of a time, `stamp` ns, and `marked` returns, in the node's frame."""
        if stamp - self._live < LIVE_EVERY * 1e9:
            return
        self._live = stamp
        self._recording.set_time("time", timestamp=1e-9 * stamp)
        self._by_residual("after", clouds)
        if marked is not None:
            self._points("world/footprint/returns", thinned(marked), FIT, 2 * RADIUS)

    def series(self, name: str, value: float) -> None:
        self._log(f"plots/{name.replace(' ', '_')}", self._rerun.Scalars(value))

    def close(self) -> None:
        """Write out all data; browsers are served until Ctrl-C."""
        self._recording.flush()
        if self._server is not None:
            print("view: served until Ctrl-C", file=sys.stderr, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    time.sleep(1.0)

    def _points(self, path: str, points: np.ndarray, colours: Any, radius: float = RADIUS, **more: Any) -> None:
        self._log(path, self._rerun.Points3D(points, colors=colours, radii=radius, **more))

    def _log(self, path: str, *what: Any, static: bool = False) -> None:
        self._recording.log(path, *what, static=static)


def _server(host: str, port: int) -> tuple[subprocess.Popen, str]:
    """Start the server of the viewer's page on an address and port, which ends with this process; return it with the
    URL for data, on a free port of the same address. (A server in this process would listen on all interfaces.)"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as free, socket.socket(family) as wanted:
            wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            wanted.bind((host, port))
            free.bind((host, 0))
            data = free.getsockname()[1]
    except OSError as error:
        raise InputError(f"--view-port {port}: cannot be served on {host}: {error.strerror or error}") from error
    command = [sys.executable, "-m", "rerun", "--serve-web", "--bind", host, "--port", str(data)]
    silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    server = subprocess.Popen([*command, "--web-viewer-port", str(port)], **silent)
    atexit.register(server.terminate)
    # One that listens on all addresses is reached at this machine's own.
    reached = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
    for own in (data, port):
        _wait_for(server, reached, own)
    shown = f"[{reached}]" if ":" in reached else reached
    url = f"rerun+http://{shown}:{data}/proxy"
    seen = " (from elsewhere: use this machine's name for both)" if reached != host else ""
    print(f"view: http://{shown}:{port}?url={url}{seen}", file=sys.stderr, flush=True)
    return server, url


def _wait_for(server: subprocess.Popen, host: str, port: int) -> None:
    deadline = time.monotonic() + SERVER_START
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return
        time.sleep(0.05)
    server.terminate()
    listen = f"Rerun's server does not listen on {host}:{port}"
    raise InputError(f"--view-port: {listen}; check that 'python -m rerun' works")


def _blueprint(rerun: Any) -> Any:
    from rerun import blueprint as layout

    def space(name: str, *contents: str) -> Any:
        return layout.Spatial3DView(
            origin="world", name=name, contents=[*contents, "world/robot/**"],
            eye_controls=layout.EyeControls3D(position=EYE, look_target=TARGET),
        )  # fmt: skip

    clouds = (space(when, f"world/{when}/by_lidar/**") for when in ("before", "after"))
    residuals = space("residuals after", "world/after/by_residual/**", "world/footprint/floor")
    body = space("body shape", *(f"world/footprint/{name}" for name in ("returns", "shape", "stop_zone")))
    below = layout.Horizontal(layout.Tabs(residuals, space("patches", "world/patches/**")), body)
    plots = layout.TimeSeriesView(origin="plots", name="standard deviations, residuals")
    return layout.Blueprint(
        layout.Horizontal(
            layout.Vertical(layout.Horizontal(*clouds), below),
            layout.Vertical(plots, layout.TextLogView(origin="log")), column_shares=[4, 1],
        ), collapse_panels=True,
    )  # fmt: skip


def thinned(points: np.ndarray) -> np.ndarray:
    """Return at most `DRAWN` of the points (N, ...), as float32."""
    return np.asarray(points[:: max(1, -(-len(points) // DRAWN))], dtype=np.float32)


def coloured(values: np.ndarray) -> np.ndarray:
    """Return colours (N, 3) uint8 of signed lengths (N,): blue below, grey at 0, red above; full at `SHOWN`."""
    share = np.clip(np.asarray(values, dtype=float) / SHOWN, -1.0, 1.0)[:, None]
    ends = np.where(share < 0.0, np.array([[33.0, 102.0, 172.0]]), np.array([[178.0, 24.0, 43.0]]))
    return np.uint8(np.abs(share) * ends + (1.0 - np.abs(share)) * 215.0)


NEIGHBOURS, FLAT, NEAR = 8, 0.02, 0.08  # returns of a plane; m that they may scatter across it; m to the other cloud


def residuals(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return those right points (K, 3) that lie at a flat place of the left cloud, and their distances (K,) from it."""
    from scipy.spatial import cKDTree

    if len(left) < NEIGHBOURS or not len(right):
        return np.zeros((0, 3), np.float32), np.zeros(0)
    distances, indices = cKDTree(left).query(right, NEIGHBOURS)
    chosen = np.flatnonzero(distances[:, -1] < 3.0 * NEAR)
    around = left[indices[chosen]].astype(float)
    centre = around.mean(axis=1)
    off = around - centre[:, None]
    spread, axes = np.linalg.eigh(np.einsum("nki,nkj->nij", off, off) / NEIGHBOURS)
    # A plane, not a line: a single ring of a lidar determines nothing across itself.
    flat = (np.sqrt(np.maximum(spread[:, 0], 0.0)) < FLAT) & (spread[:, 1] > 4.0 * spread[:, 0]) & (spread[:, 1] > 1e-5)
    normals = axes[:, :, 0]
    normals *= -np.sign((normals * centre).sum(axis=1))[:, None]  # towards the robot
    gaps = ((right[chosen] - centre) * normals).sum(axis=1)
    kept = flat & (np.abs(gaps) < NEAR)
    return right[chosen[kept]], gaps[kept]
