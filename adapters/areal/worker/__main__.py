"""`python -m adapters.areal.worker SPEC`: AReaL's controller process; its workers are processes of their own."""

if __name__ == "__main__":
    import sys

    from adapters.areal.worker.session import main

    sys.exit(main(sys.argv[1]))
