"""The transform between the two lidars, from what both see."""
