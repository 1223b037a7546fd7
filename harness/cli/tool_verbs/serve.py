"""`bench tools serve`: a tool server outside any run."""

import click

from harness.protocol.errors import SpecError


@click.command("serve", short_help="Serve tools outside any run.")
@click.option("--tools", default="local", show_default=True, metavar="NAME", help="local, web[:NAME,...], replay:FILE.")
@click.option("--corpus", metavar="generated:PAGES|DIR", help="Of local tools. Default: generated:1000.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of a generated corpus.")
@click.option("--record", metavar="FILE.parquet", help="Write every call and its answer to this file.")
@click.option(
    "--faults", metavar="KIND=RATE,...", help="Of local tools, on their web: timeout=0.01,error=0.02,slow=..."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any that is free.")
def command(
    tools: str, corpus: str | None, seed: int, record: str | None, faults: str | None, host: str, port: int
) -> None:
    """Serve tools until Ctrl-C; prints the address and the token that every request needs.

    POST /call with {"tool": "search_engine", "argument": "WORDS"} or {"tool": "web_browser", "argument": "URL"};
    GET /stats counts. Only this machine is listened to unless --host says otherwise.
    """
    from harness.prepare import corpus_folder
    from harness.specs.inputs import DEFAULT_CORPUS, read_corpus, read_tools
    from harness.tool_server import require_libraries

    asked = read_tools(tools, record)
    if asked.kind == "mock":
        raise SpecError("tools = mock: allowed is local, web or replay; mock tools need no server")
    require_libraries()
    arguments = ["--tools", asked.kind, "--host", host, "--port", str(port)]
    if asked.kind == "local":
        name, _ = read_corpus(corpus or DEFAULT_CORPUS, seed)
        folder = corpus_folder(name, seed, lambda text: click.echo(text, err=True))
        arguments += ["--corpus", str(folder)]
    elif corpus is not None:
        raise SpecError(f"--corpus: allowed with local tools; tools = {tools}")
    if asked.trace:
        arguments += ["--trace", asked.trace]
    if asked.record is not None:
        arguments += ["--record", asked.record]
    if faults:
        arguments += ["--faults", faults]
    from workloads.deep_research.serving.__main__ import serve

    serve(arguments)
