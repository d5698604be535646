"""`headrace completion bash|zsh|fish`: the script that makes a shell complete commands, options, topics and groups."""

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HEADRACE_COMPLETE"


@click.command(short_help="Completion of commands by the shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, and the names of topics and groups.

    \b
    Examples, for now or for good:
      eval "$(headrace completion bash)"
      headrace completion bash >> ~/.bashrc
      headrace completion zsh  >> ~/.zshrc
      headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    from click.shell_completion import get_completion_class

    from headrace.cli.main import headrace

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    # click asks bash for its version first, and complains where there is none; a script may be made elsewhere.
    writer = made(headrace, {}, "headrace", VARIABLE)
    click.echo(writer.source_template % writer.source_vars())
