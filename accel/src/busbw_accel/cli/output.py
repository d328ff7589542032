"""What `busbw train` prints while it runs."""

from busbw.cli.output import RunOutput
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core.result import Outcome
from busbw.measure.events import Ended, Event, Started
from busbw_accel.train import text as train_text
from busbw_accel.train.kinds import Iteration, Trained, TrainResult


class TrainOutput(RunOutput):
    """Prints a training line by line, then the table of methods."""

    def show(self, event: Event, result: Outcome) -> None:
        """Print header, iterations, ends of methods and footer."""
        assert isinstance(result, TrainResult)
        if isinstance(event, Started):
            print_out(train_text.header(result, width()))
        elif isinstance(event, Iteration):
            print_out(train_text.iteration(result, event.method, event.number, event.rate))
        elif isinstance(event, Trained):
            print_out(train_text.method_end(result, event.run.method))
        elif isinstance(event, Ended):
            print_out(train_text.footer(result, width()))
