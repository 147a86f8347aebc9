"""Jobs: the work of a command cut into shards, which many processes or machines do (`docs/howto/cluster.md`).

A job is a folder, on disk or behind an fsspec address:

    job.json           what is to be done, and its fingerprint
    manifest.jsonl     a shard a line (`tellapart.jobs.manifest`)
    lists/             the pictures of each shard, where no file of the data is one
    parts/00012.jsonl  the result of a shard: there whole or not at all, and there means done
    failed/00012.json  a shard that was set aside, with the reason
    status.json        how far it is, for ``tellapart job status``

Ray schedules and transports; nothing of a job is kept in its memory or in the driver's beyond the list of shards.
"""
