"""A mobile robot whose lidars have hardly a level surface in common: 16 channels upside down on a boom, and a dome in
front. With a `third` one, of 32 channels and a narrow view, that looks backwards.
"""

from pathlib import Path

from stretch_sim_cal.files import write_yaml

LINK = '<link name="{0}"/><joint name="{0}_joint" type="fixed"><origin xyz="{1}" rpy="{2}"/><parent link="base_link"/>\
<child link="{0}"/></joint>'
LIDARS = {
    "left": ("top", "0.03 0 0.905", "3.14159265358979 0 0", "vlp16"),
    "right": ("dome", "0.36 0.18 0.32", "0 1.2217304763960306 0.5235987755982988", "bpearl"),
    "third": ("back", "-0.38 -0.2 0.32", "0 0.17453292519943295 -2.0943951023931953", "back.yaml"),
}
BACK = {
    "rate": 10.0, "azimuth_steps": 1800, "range_min": 0.2, "range_max": 100.0, "range_noise": 0.01, "misses": "none",
    "driver": {"azimuth_window_deg": [-60.0, 60.0]}, "elevations_deg": [-12.5 + 0.8 * ring for ring in range(32)],
}  # fmt: skip


def top_and_dome(folder: Path, third: bool = False) -> Path:
    """Write the robot into a folder; return its profile."""
    own = {name: lidar for name, lidar in LIDARS.items() if third or name != "third"}
    links = "".join(LINK.format(link, xyz, rpy) for link, xyz, rpy, _ in own.values())
    base = '<link name="base_link"><collision><origin xyz="0 0 0.12"/><geometry><box size="0.8 0.54 0.28"/></geometry>\
</collision></link><link name="base_footprint"/><joint name="floor" type="fixed"><origin xyz="0 0 -0.1"/>\
<parent link="base_link"/><child link="base_footprint"/></joint>'
    (folder / "robot.urdf").write_text(f'<robot name="top_and_dome">{base}{links}</robot>')
    write_yaml(folder / "back.yaml", BACK)
    lidars = {
        name: {"frame": link, "topic": f"/{link}/points", "sensor": kind, "unseen": [link]}
        for name, (link, _, _, kind) in own.items()
    }  # fmt: skip
    write_yaml(folder / "robot.yaml", {
        "name": "top and dome", "description": {"file": "robot.urdf"}, "convention": "none", "base_frame": "base_link",
        "footprint_frame": "base_footprint", "sensor": "vlp16", "lidars": lidars,
    })  # fmt: skip
    return folder / "robot.yaml"
