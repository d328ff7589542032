"""`busbw completion`: the script with which a shell completes busbw's command lines."""

import click
from click.shell_completion import get_completion_class

from busbw.cli.streams import answer
from busbw.core.exits import Exit

# click's: with it, busbw answers the shell instead of running a command
VARIABLE = "_BUSBW_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command("completion", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    """Print the script that makes SHELL complete commands, options, and values: collectives,
    engines, formats, systems, files, runs.

    \b
    bash: busbw completion bash > ~/.local/share/bash-completion/completions/busbw
    zsh:  source <(busbw completion zsh)    in ~/.zshrc, after compinit
    fish: busbw completion fish > ~/.config/fish/completions/busbw.fish

    Without the package bash-completion, add to ~/.bashrc: source <(busbw completion bash)
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click completes nothing in {shell}", context)
    script = found(context.find_root().command, {}, "busbw", VARIABLE).source()
    answer(script.strip() + "\n")
    return int(Exit.OK)
