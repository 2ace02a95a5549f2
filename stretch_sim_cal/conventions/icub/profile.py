"""The iCub model naming conventions as a profile."""

from stretch_sim_cal.conventions.icub import rules
from stretch_sim_cal.conventions.icub.tables import ROOT_LINK, SMALL_WITHOUT_MASS, SMALL_WITHOUT_SHAPE
from stretch_sim_cal.conventions.profile import Exemption, Profile, Rule

RULES = (
    Rule("control-board", "The joints of each YARP control board, by name and type.", rules.control_boards),
    Rule("joint-name", "Moving joints are those of the table.", rules.unknown_joints),
    Rule("ft-sensor", "Force-torque sensors are fixed joints.", rules.ft_sensors),
    Rule("links", "Links, their parent joints and parent links.", rules.links),
    Rule("body", "Links have a mass and a shape.", rules.bodies),
    Rule("axis", "Axes at zero in the root frame.", rules.axes),
    Rule("frame", "Frames, DH frames and skin frames.", rules.frames),
)

EXEMPTIONS = (
    Exemption("axis", "torso_roll", "the table says (-1 0 0), released models turn about (1 0 0)", at_least=179.0),
    *(Exemption(rule, names, "released models (iCubGenova03, iCubLisboa01) leave it to the link beside it")
      for rule, each in (("link-mass", SMALL_WITHOUT_MASS), ("link-shape", SMALL_WITHOUT_SHAPE)) for names in each),
)  # fmt: skip

ICUB = Profile("icub", "iCub model naming conventions", RULES, EXEMPTIONS, ROOT_LINK)
