"""Body-shape datasets: a folder of samples, one arm pose each, that is whole after every sample and can be continued.

DIR/metadata.yaml       format, frame, info, skipped, samples[]: id, commanded, actual, joints, file, num_points
DIR/sample_0000.npz     points (N, 3+) float32 in base_footprint; optional left, right (N, 3+) in their lidar's frame
DIR/description.urdf    the robot's description while it was recorded
"""

from stretch_sim_cal.recording import JOINTS
from stretch_sim_cal.recording.dataset.metadata import METADATA
from stretch_sim_cal.recording.dataset.reader import Dataset, read_dataset
from stretch_sim_cal.recording.dataset.samples import Sample
from stretch_sim_cal.recording.dataset.writer import DatasetWriter

__all__ = ["JOINTS", "METADATA", "Dataset", "DatasetWriter", "Sample", "read_dataset"]
