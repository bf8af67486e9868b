"""Check for page checksums in shards, and the message if there are none."""

from __future__ import annotations

from streamomd.shards.shard import ShardSet


def without_checksums(shards: ShardSet) -> list[str]:
    """One line if shards with rows have no page checksums, else none."""
    read = [shard for shard in shards if shard.rows]
    plain = [shard for shard in read if shard.checksums is False]
    if not plain:
        return []
    kinds = {shard.format for shard in plain}
    fix = (
        "Arrow files never have any; `streamomd convert` writes Parquet with them"
        if kinds == {"arrow"}
        else "write Parquet with them (pyarrow: write_page_checksum=True; or `streamomd convert`)"
    )
    which = f"{len(plain):,} of {len(read):,} shards have" if len(read) > 1 else "the shard has"
    return [f"{which} no page checksums: damaged bytes may be learned as other values; {fix}"]
