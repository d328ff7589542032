"""The reference page of settings: the table, and the order of the places that they come from."""

from markdown_table import code, table

from busbw.core.settings import CONFIG_VARIABLE, FILE_NAME, REPLACES, SETTINGS, Setting


def settings() -> str:
    """Places, rules, and every setting with its variable and the options it is the default of."""
    rows = [
        (
            code(row.key),
            code(row.variable),
            row.kind.value,
            _options(row),
            row.meaning,
            code(f"{row.key} = {row.example}"),
        )
        for row in SETTINGS
    ]
    return (
        "A setting is the default of an option. [How to use them](../how-to/settings.md).\n\n"
        "The first place that has a value counts:\n\n"
        "1. the option on the command line\n"
        f"2. the variable, such as `{SETTINGS[0].variable}`; an empty one counts as not set\n"
        f"3. `./{FILE_NAME}`, in the working directory\n"
        f"4. `busbw/{FILE_NAME}` under `$XDG_CONFIG_HOME`, or under `~/.config`\n"
        "5. the default of the option\n\n"
        f"`--config FILE`, before the command or after it, or `{CONFIG_VARIABLE}=FILE`, takes the"
        " place of both files; `--config /dev/null` reads none. `busbw check config` prints each"
        " setting with its origin.\n\n"
        + table(("key", "variable", "value", "default of", "meaning", "example"), rows)
        + "## Rules\n\n"
        "* Keys stand at the top level of a TOML file. An unknown key, or a value of another type,"
        " is an error with file and line: exit code 2.\n"
        f"{_replaced()}"
        "* A setting that contradicts the command line is left out, and `-v` says so. Hosts are"
        " left out where this process is a rank of a running job, and with `--slurm`,"
        " `--engine sim`, and the options of `busbw check` that are for this machine. A network"
        " is left out where the engine moves no data through NCCL.\n"
        f"* `./{FILE_NAME}` and the user's file must belong to the user or to root, and not be"
        " writable for everybody. Under sudo they may belong to the user who called it. A file"
        " that `--config` names may belong to anyone.\n"
        "* Results record the options that settings gave, as if they had been typed.\n"
        "* The compat commands read the variables for engine and interface, and no file.\n"
    )


def _options(row: Setting) -> str:
    if not row.commands:
        return ""
    return f"{code(row.option)} of {', '.join(row.commands)}"


def _replaced() -> str:
    """A sentence for each setting that puts another out of use."""
    lines = ""
    for key, others in REPLACES.items():
        names = " and ".join(map(code, others))
        lines += f"* `{key}`, as an option or of a closer place, puts {names} out of use.\n"
    return lines
