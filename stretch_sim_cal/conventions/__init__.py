"""Rules over a robot description (Stretch, REP 199, iCub) and the normalizer."""
