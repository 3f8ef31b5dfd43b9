"""Options of the verbs that run on Spark."""

from typing import Annotated

import typer

Master = Annotated[str | None, typer.Option(metavar="URL", help="Spark master (default: all cores of this machine).")]
Conf = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Spark setting; may be repeated.", show_default=False)]
