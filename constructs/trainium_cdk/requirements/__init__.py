"""What pip installs, as its requirements files write it: read, and refused where it cannot work on a cluster."""

from trainium_cdk.errors import RequirementError as RequirementError
from trainium_cdk.requirements.file import Requirements as Requirements
from trainium_cdk.requirements.file import entry as entry
from trainium_cdk.requirements.file import is_word as is_word
from trainium_cdk.requirements.file import of_lines as of_lines
from trainium_cdk.requirements.file import read as read
from trainium_cdk.requirements.line import Line as Line
