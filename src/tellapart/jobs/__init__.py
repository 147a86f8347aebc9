"""Jobs: split a command's work into shards that many processes or machines process (`docs/howto/cluster.md`).

A job is a folder, on disk or behind an fsspec address:

    job.json           the work, its settings and its fingerprint
    manifest.jsonl     one shard per line (`tellapart.jobs.manifest`)
    lists/             the pictures of each shard, if shards are not files of the data
    parts/00012.jsonl  the result of a shard, written atomically; if it exists, the shard is done
    failed/00012.json  a shard that was set aside, and why
    status.json        progress, for ``tellapart job status``

Ray schedules the shards and transports messages. Neither Ray nor the driver keeps job data in memory, except for the
list of shards.
"""
