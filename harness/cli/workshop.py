"""`bench workshop`: the page with the sliders."""

import click

from harness.cli.output import file_problem


@click.command("workshop", short_help="A page with sliders: synchronous against async.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1. Default: any free one.")
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in the browser.")
def command(port: int, browser: bool) -> int:
    """Serve the workshop page on this machine: sliders for durations, update time, workers, batch and staleness bound.

    It needs no network, and is for this machine's own browser only (127.0.0.1). Ctrl-C ends it. Its figures are those
    of `bench simulate` with the same settings.
    """
    from reports.workshop.answers import warm
    from reports.workshop.server import Server

    try:
        server = Server(port)
    except OSError as error:
        raise file_problem(error, f"port {port}", "name another one with --port") from None
    with server:
        how = warm()
        click.echo(f"the workshop is at {server.url} (Ctrl-C ends it)")
        if how != "compiled":
            click.echo("the curve will lag behind the hand: pip install 'agentic-rl-bench[sim]' makes it quick")
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("ended")
    return 0
