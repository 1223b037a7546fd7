"""`python -m adapters.verl.worker SPEC`, kept without heavy imports."""

if __name__ == "__main__":
    import sys

    from adapters.verl.worker.session import main

    sys.exit(main(sys.argv[1]))
