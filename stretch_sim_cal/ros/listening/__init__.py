"""What comes in from ROS: clouds in pairs, joints, frames, and what is said where nothing comes."""
