-- Partitions of message and attempt: the first begins at MINVALUE or well before now, the last always
-- ends at MAXVALUE, there is no gap, and no DEFAULT.

create or replace function workq._partitions(parent regclass, relation out regclass, lower out timestamptz, upper out timestamptz)
returns setof record
language sql
stable
-- The bounds are read back from the text that PostgreSQL shows them as.
set datestyle = 'ISO'
as $$
  select
    c.oid::regclass,
    case b.bounds[1] when 'MINVALUE' then '-infinity' else btrim(b.bounds[1], '''')::timestamptz end,
    case b.bounds[2] when 'MAXVALUE' then 'infinity' else btrim(b.bounds[2], '''')::timestamptz end
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  cross join lateral (
    select regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \((.+)\) TO \((.+)\)') as bounds
  ) b
  where i.inhparent = parent and not i.inhdetachpending
  order by 2;
$$;
comment on function workq._partitions is 'the partitions of a table with their bounds, in order; lower is inclusive, upper is not; infinite for MINVALUE and MAXVALUE';
