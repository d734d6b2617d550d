"""The program that runs on a cluster: it submits jobs to Slurm, carries them out on each node, and answers for them.

Standard library alone, Python 3.9 or newer; it imports nothing else of this package. It travels as one file (`client/jobs/runner.py`), which
Slurm's nodes find on the shared file system, and Kubernetes' pods in a ConfigMap. The client shares the job (`spec`), the requests (`requests`), the statuses (`status`)
and the readers of logs (`readers`).

    head/       requests of users: submit, status, list, log, cancel
    work/       in a job: stages, nodes, the program, TensorBoard and its files, relays
    prepare/    what a job fetches first
    readers/    lines of logs: steps, and why a program ended

    runner ask < request.json       on the head node, as the jobs' user: one request, one answer
    runner stage JOB STAGE...       Slurm: the batch script of these stages, one after the other
    runner node JOB STAGE           Slurm: once for each process of a stage, started by srun
    runner pod STAGE                Kubernetes: once in each container of a job
    runner folder PLACE             Kubernetes: the jobs' folder on a new file system
    runner prepare JOB ENV          what a job fetches, as the program of its first stage
    runner step, relay, board       a command, a port, and TensorBoard on a node of a job
    runner events FOLDER SINCE LOG  the numbers of TensorBoard's files, with a program that prints none

A job is a folder on the shared file system, the same on both engines:

    job.json          the job (`spec.JobSpec`), without the values of its variables
    env.json          its variables; only its user reads it
    submitted.json    Slurm: the numbers of its stages. Written last: without it there is no job
    cancelled         present once it was cancelled
    files/            what its kind sends
    code/ work/       the folder of its user's code; where a script alone runs
    logs/             STAGE.log (Slurm: of the batch script, while it runs that stage), STAGE.NODE.log
    state/            STAGE.json: how a stage runs or ended; STAGE.RUN.failed.json: which node failed first, and why; marks of nodes (`records`)
    INDEX/            of an array: the same folders of a member
"""

PEOPLE = "trn-users"
"""Folder on the shared file system: each user has its own folder in it."""
