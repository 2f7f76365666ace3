"""Writes tests/golden/tensorboard/: an event file as the tensorboard package writes it, and its values as JSON.

    pip install tensorboard==2.21.0 && python3 tests/golden/event_file.py
"""

import json
import pathlib

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

FOLDER = pathlib.Path(__file__).resolve().parent / "tensorboard"
FIRST_STEP = 129  # two bytes as a varint
# Values that float32 rounds, a zero, a NaN and a negative one; tags longer than 127 bytes and beyond ASCII.
STEPS = [
    {"step": 129, "wall_time": 1769860801.25, "scalars": [["loss/main", 5.5451774], ["grad norm", 1.0 / 3.0]]},
    {"step": 130, "wall_time": 1769860802.5, "scalars": [["loss/main", 0.0], ["lr", -1e-30]]},
    {"step": 2097152, "wall_time": 1769860803.0, "scalars": [["x" * 200, 1e30], ["\u03b1/\u6f22", 16777217.0]]},
    {"step": 2**40, "wall_time": 0.0, "scalars": [["bytes/peak", 139264.0]]},
]
START_TIME = 1769860800.125


def main():
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / "events", "wb") as file:
        writer = RecordWriter(file)
        writer.write(event_pb2.Event(wall_time=START_TIME, file_version="brain.Event:2").SerializeToString())
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        writer.write(event_pb2.Event(wall_time=START_TIME, step=FIRST_STEP, session_log=start).SerializeToString())
        for entry in STEPS:
            values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in entry["scalars"]]
            event = event_pb2.Event(wall_time=entry["wall_time"], step=entry["step"],
                                    summary=summary_pb2.Summary(value=values))
            writer.write(event.SerializeToString())
    facts = {"start_time": START_TIME, "first_step": FIRST_STEP, "steps": STEPS}
    (FOLDER / "values.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
