"""What a rule is: a check of a command line."""

from busbw.check.base import CheckOf
from busbw.check.command.line import Line

STAYS = "change the script or note that holds the line"

Rule = CheckOf[Line]
