"""The transform between the two lidars, from surfaces that both see."""
