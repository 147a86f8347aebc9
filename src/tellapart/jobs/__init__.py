"""Jobs split a command's work into shards, which many processes or machines can share (`docs/howto/cluster.md`).

A job is a folder, on disk or at an fsspec URL:

    job.json           the kind of work, its settings, and their fingerprint
    manifest.jsonl     one shard per line (`tellapart.jobs.manifest`)
    lists/             the pictures of each shard, if shards are not files in the data
    parts/00012.jsonl  the result of a shard, written atomically; if it exists, the shard is done
    failed/00012.json  a shard that was set aside, and why
    status.json        progress, for ``tellapart job status``

Ray schedules the shards and transports messages. Ray and the driver keep only the list of shards in memory, not the
job's data.
"""
