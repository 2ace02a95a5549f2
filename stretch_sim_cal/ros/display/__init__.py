"""What goes out for RViz: calibrated clouds and markers."""
