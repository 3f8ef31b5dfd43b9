"""The application around every verb: global options, aliases of renamed options, exit statuses, one-line errors.

====== ============================================================================================
status meaning
====== ============================================================================================
0      success; also when the reader of the output (``| head``) has closed the pipe
1      runtime error
2      invalid input: options, files, lines; the message names the place and the expectation
130    interrupted by Ctrl-C
129    ended by SIGHUP (``pub``, ``sub``)
143    ended by SIGTERM (``pub``, ``sub``)
====== ============================================================================================

An error is one line on stderr that begins with ``overweave: ``; ``--debug`` adds a traceback before it.
"""

import contextlib
import difflib
import importlib
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from overweave.cli.stopping import Terminated
from overweave.cli.terminal import PROGRAM, discard, say
from overweave.errors import DuplicateId, InvalidInput, OverweaveError
from overweave.language.values import excerpt

_DEBUG_OPTION = "--debug"
_DEBUG_VARIABLE = "OVERWEAVE_DEBUG"
_CONNECTION = {"--authorities": "--cafile", "--wait": "--connect-timeout"}
#: By verb, the options of the release before and their names of today. They are removed with the next release.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "pub": _CONNECTION,
    "sub": _CONNECTION,
    "sweep": {"--again": "--retry-failed"},
}
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def run(verbs: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    if sys.stderr is None:
        # Otherwise prints to stderr would end up in the output.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (open until the process ends)
    if sys.stdout is None:
        say("cannot write the output: standard output is closed")
        return 1
    debug, arguments = _without_debug(arguments)
    arguments = _without_aliases(arguments)
    debug = debug or os.environ.get(_DEBUG_VARIABLE, "0") not in ("", "0")

    def command() -> int:
        status = _application(verbs).main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0

    if not debug:
        return _guarded(command, debug)
    # The Spark session and child processes read it from the environment.
    before = os.environ.get(_DEBUG_VARIABLE, "0")
    os.environ[_DEBUG_VARIABLE] = "1"
    try:
        return _guarded(command, debug)
    finally:
        os.environ[_DEBUG_VARIABLE] = before


def _without_debug(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """``--debug`` is accepted before and after the verb, so it is removed before parsing."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument != _DEBUG_OPTION]
    return len(options) < end, [*options, *arguments[end:]]


def _without_aliases(arguments: Sequence[str]) -> list[str]:
    """The arguments with today's names of renamed options.

    >>> _without_aliases(["sub", "--wait=3", "--authorities", "ca.pem", "--", "--wait"])
    ['sub', '--connect-timeout=3', '--cafile', 'ca.pem', '--', '--wait']
    >>> _without_aliases(["match", "--wait"])
    ['match', '--wait']
    """
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    names = ALIASES.get(verb, {})
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    found = []
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        found.append(f"{names[name]}{equals}{value}" if name in names else argument)
    return [*found, *arguments[end:]]


def _guarded(command: Callable[[], int], debug: bool) -> int:
    """The exit status of ``command`` for all its exceptions, by the table of the module's docstring."""
    try:
        status = command()
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except Terminated as signalled:
        say(f"ended by {signalled}")
        return signalled.status
    except (BrokenPipeError, SystemExit) as leaving:
        # typer turns a broken pipe into an exit with status 1; the error is its context.
        _discard_output()
        return 0 if isinstance(leaving.__context__ or leaving, BrokenPipeError) else 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        _discard_output()
        say(_explanation(error))
        return 2 if isinstance(error, typer.TyperException | InvalidInput | DuplicateId) else 1
    if status == 130:
        say("interrupted")
    return status


def _explanation(error: Exception) -> str:
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        verb = context.info_name if context is not None and context.parent is not None else None
        text = error.format_message() + _expectation(error)
        return f"{verb}: {text}" if verb else text
    if isinstance(error, OverweaveError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {error} (unexpected; {_DEBUG_OPTION} shows a traceback)"


def _expectation(error: Exception) -> str:
    """The expectation that the parser does not state; typer does not export the types of its errors."""
    kind, parameter, context = type(error).__name__, getattr(error, "param", None), getattr(error, "ctx", None)
    if kind == "MissingParameter" and parameter is not None and parameter.help:
        return f" Expected {parameter.help[0].lower()}{parameter.help[1:]}"
    if kind == "NoSuchOption" and context is not None:
        known = [name for each in context.command.get_params(context) for name in each.opts if name.startswith("--")]
        return f"; expected one of {', '.join(known)}"
    return ""


def _discard_output() -> None:
    """Flush stdout, or discard its buffer."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    discard(sys.stdout)


class _Verbs(typer.core.TyperGroup):
    """A group of verbs by name; only the called one is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidInput(f"expected a verb ({', '.join(self.commands)}), found {excerpt(args[0])}{meant}")
        name, _, rest = super().resolve_command(ctx, args)
        return name, _command(name), rest

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)


def _application(verbs: Mapping[str, str]) -> Any:
    application = typer.Typer(
        cls=_Verbs,
        callback=_options,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings=_SETTINGS,
        subcommand_metavar="VERB …",
    )
    for name, summary in verbs.items():
        application.command(name, help=summary)(lambda: None)
    return typer.main.get_command(application)


def _command(name: str | None) -> Any:
    """The command of a verb, from its file."""
    module = importlib.import_module(f"overweave.cli.{name}")
    application = typer.Typer(add_completion=False, rich_markup_mode=None)
    example = "\b\nExample:\n" + textwrap.indent(module.EXAMPLE, "  ")
    application.command(name, epilog=example, context_settings=_SETTINGS)(getattr(module, str(name)))
    return typer.main.get_command(application)


def _version(wanted: bool) -> None:
    if wanted:
        from overweave import __version__

        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,  # noqa: ARG001
    debug: Annotated[bool, typer.Option(_DEBUG_OPTION, help=f"Show tracebacks; also {_DEBUG_VARIABLE}=1.")] = False,  # noqa: ARG001
) -> None:
    """Content-based publish/subscribe that plans, measures and re-weaves its own broker overlay."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
