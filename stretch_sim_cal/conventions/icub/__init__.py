"""The iCub naming conventions."""
