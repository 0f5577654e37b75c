"""The folder that ``wafx`` puts into ``PYTHONPATH``. It has ``sitecustomize.py`` and nothing else."""
