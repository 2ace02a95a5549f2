"""A collection of arm poses without ROS: settings, plan of the tour, and checks of the room."""
