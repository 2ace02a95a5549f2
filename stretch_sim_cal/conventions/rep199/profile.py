"""REP 199 as a profile."""

from stretch_sim_cal.conventions.profile import Profile, Rule
from stretch_sim_cal.conventions.rep199 import name_rules as names
from stretch_sim_cal.conventions.rep199 import rules

RULES = (
    Rule("base_link", "base_link is rigidly attached to the root body.", rules.base_link),
    Rule("base", "base is the controller's Cartesian frame, fixed, without shapes.", rules.base),
    Rule("link_n", "link_n in the order of the chain, oriented after REP 103.", rules.link_n),
    Rule("flange", "flange: fixed, without shapes, x+ away from the last link, REP 103.", rules.flange),
    Rule("tool0", "tool0: fixed, without shapes, child of flange; tool frames are its siblings.", rules.tool0),
    Rule("tool-names", "No toolN; names as ROS names them.", names.tool_names),
    Rule("eef-flange", "End effectors hang on flange.", rules.tools_on_flange),
    Rule("prefix", "Several arms have prefixes.", names.prefixes),
    Rule("left-handed", "Right-handed frames only.", names.left_handed),
    Rule("vendor-names", "The vendors' names are hints.", names.vendor_names),
)

REP199 = Profile("rep199", "REP 199 frames of serial industrial manipulators", RULES, anchor="base_link")
