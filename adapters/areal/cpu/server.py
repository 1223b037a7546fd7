"""`python -m adapters.areal.cpu.server FLAGS`: vLLM's API server with the routes that AReaL calls.

The routes and their meaning are those of AReaL 1.0.4's `areal_vllm_server`, which is written for vLLM 0.19; the flags
are what AReaL passes to it.
"""

from typing import Any

ROUTES = {
    "/areal_update_weights": ("areal_update_weights", ("model_path",)),
    "/areal_init_weights_update_group": (
        "areal_init_update_weight_group",
        ("master_address", "master_port", "rank_offset", "world_size", "backend", "group_name"),
    ),
    "/areal_set_update_weight_meta": ("areal_set_weight_meta", ("names", "dtypes", "shapes", "group_name")),
    "/areal_update_weights_xccl": ("areal_update_weight_xccl", ()),
}


def add_routes(app: Any) -> None:
    """Adds AReaL's routes; those of ROUTES call the worker extension, and answer 400 when a worker failed."""
    from fastapi import Request
    from fastapi.responses import JSONResponse

    def engine() -> Any:
        return app.state.engine_client

    def in_workers(method: str, keys: tuple[str, ...]) -> Any:
        async def call(request: Request) -> JSONResponse:
            body = await request.json()
            results = await engine().collective_rpc(method, args=tuple(body[key] for key in keys))
            ok = all(result[0] for result in results)
            message = "; ".join(str(result[1]) for result in results)
            return JSONResponse({"success": ok, "message": message}, status_code=200 if ok else 400)

        return call

    async def pause() -> dict[str, bool]:
        # What runs is aborted (AReaL sends the rest again), what comes is held; the KV of old weights is dropped.
        await engine().pause_generation(mode="abort", clear_cache=True)
        return {"success": True}

    async def resume() -> dict[str, bool]:
        await engine().resume_generation()
        return {"success": True}

    async def nothing() -> dict[str, bool]:
        return {"success": True}  # without a GPU there is no memory that sleep could free

    for path, (method, keys) in ROUTES.items():
        app.add_api_route(path, in_workers(method, keys), methods=["POST"])
    app.add_api_route("/areal_pause_generation", pause, methods=["POST"])
    app.add_api_route("/areal_continue_generation", resume, methods=["POST"])
    for path in ("/sleep", "/wake_up"):
        app.add_api_route(path, nothing, methods=["POST"])


def main() -> None:
    """Serves until it is ended."""
    from vllm.entrypoints.launchers.api_server import entry

    from adapters.child.track import require

    module: Any = entry
    real: Any = require(module, "build_app")

    def build_app(*args: Any, **kwargs: Any) -> Any:
        app = real(*args, **kwargs)
        add_routes(app)
        return app

    module.build_app = build_app
    require(module, "main")
    module.main()


if __name__ == "__main__":
    main()
