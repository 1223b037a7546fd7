"""`python -m adapters.skyrl.worker SPEC`.

Kept without heavy imports: SkyRL's start method is "spawn", so each of its children imports this file again.
"""

if __name__ == "__main__":
    import sys

    from adapters.skyrl.worker.session import main

    sys.exit(main(sys.argv[1]))
