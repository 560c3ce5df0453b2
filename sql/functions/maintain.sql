-- Maintenance: partitions ahead of time, and retention.
--
-- The tails end at MAXVALUE, so that enqueue works when maintain never ran, whatever the burst or the
-- clock. Closing a tail makes it an ordinary partition and starts a new, empty one. That is quick,
-- because the tail that is closed in time is empty too; one that was neglected is read once.
--
-- A partition of messages is dropped when it is older than every retention and no delivery needs it;
-- dead letters carry their own copies. Every step waits for its lock for 100 ms at most and is left for
-- the next time otherwise, so that senders never queue behind it for longer.

-- workq._close_tail: make partitions until there is one whole width ahead of the clock.
create or replace function workq._close_tail(parent regclass, at text, width interval)
returns setof workq.maintenance
language plpgsql
volatile
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_tail text := parent::text || '_tail';
  v_lower timestamptz;
  v_upper timestamptz;
  v_last timestamptz;
  v_name text;
begin
  loop
    select p.lower into strict v_lower from workq._partitions(parent) p where p.upper = 'infinity';
    exit when v_lower >= v_now + width;
    -- Ahead of the clock and of all rows: a clock that was stepped back leaves some in the future.
    execute format('select max(%I) from %s', at, v_tail) into v_last;
    v_upper := date_trunc('second', greatest(v_lower, v_now, v_last) + width);
    v_name := format('%s_before_%s', replace(parent::text, 'workq.', ''), to_char(v_upper at time zone 'UTC', 'YYYYMMDD"t"HH24MISS'));
    begin
      execute format('alter table %s detach partition %s', parent, v_tail);
      execute format('alter table %s rename to %I', v_tail, v_name);
      execute format('alter table %s attach partition workq.%I for values from (%s) to (%L)', parent, v_name,
        case when v_lower = '-infinity' then 'minvalue' else quote_literal(v_lower) end, v_upper);
      execute format('create table %s partition of %s for values from (%L) to (maxvalue)', v_tail, parent, v_upper);
    exception when lock_not_available then
      return query select 'busy, left for the next time', v_name;
      return;
    end;
    return query select 'partition made', v_name;
  end loop;
end;
$$;
comment on function workq._close_tail is 'closes the tail partition of a table, as often as it takes to have a partition ahead of the clock; at: the column that it is partitioned by';

-- workq._drop_partition: drop one partition if nothing needs it.
-- The proof is made under the lock, in one statement, with a snapshot that is taken after the lock.
create or replace function workq._drop_partition(parent regclass, partition regclass, needed text)
returns setof workq.maintenance
language plpgsql
volatile
set lock_timeout = '100ms'
as $$
-- @plpgsql_check_options: security_warnings = off
#variable_conflict use_column
declare
  v_name text := replace(partition::text, 'workq.', '');
  v_needed boolean;
begin
  -- First without the lock: mostly that is the end of it.
  execute needed into v_needed;
  if v_needed then
    return;
  end if;
  begin
    execute format('lock table %s in access exclusive mode', parent);
    execute needed into v_needed;
    if v_needed then
      return;
    end if;
    execute format('drop table %s', partition);
  exception when lock_not_available then
    return query select 'busy, left for the next time', v_name;
    return;
  end;
  return query select 'partition dropped', v_name;
end;
$$;
comment on function workq._drop_partition is 'drops a partition unless the query `needed` says true under the lock';

-- workq.maintain: close tails, drop what is past retention, remove the sequences of dropped queues.
-- Locks: ACCESS EXCLUSIVE on message and attempt until the transaction ends, when there is something
-- to do, so call it in a transaction of its own.
create or replace function workq.maintain()
returns setof workq.maintenance
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set datestyle = 'ISO'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_retention interval;
  v_longest interval;
  v_partition record;
  v_sequence text;
begin
  perform workq._need_read_committed('maintain');
  -- One at a time is enough; whoever comes second has nothing to do.
  if not pg_try_advisory_xact_lock(hashtext('workq.maintain')) then
    return;
  end if;

  select coalesce(max(q.retention), interval '7 days'), coalesce(max(greatest(q.retention, q.ttl)), interval '14 days')
  into v_retention, v_longest
  from workq.queue q;
  -- A quarter of what a row lives at the longest: about eight partitions, and few locks a statement.
  -- The last day stays in any case: it is what a clock that is stepped back enqueues into.
  return query select * from workq._close_tail('workq.message', 'created_at', least(greatest(v_longest / 4, interval '1 hour'), interval '1 year'));
  return query select * from workq._close_tail('workq.attempt', 'finished_at', least(greatest(v_retention / 4, interval '1 hour'), interval '1 year'));
  v_retention := greatest(v_retention, interval '1 day');

  for v_partition in select p.* from workq._partitions('workq.message') p where p.upper < v_now - v_retention loop
    -- By the range of its ids, which the index serves, and then by the time that names the partition.
    return query select * from workq._drop_partition('workq.message', v_partition.relation, format(
      $q$
        select exists (
          select
          from (select min(m.id) as first, max(m.id) as last from %s m) m
          cross join lateral (
            select from workq.delivery d
            where d.message_id between m.first and m.last and d.created_at >= %L and d.created_at < %L
            limit 1
          ) d)
      $q$, v_partition.relation, v_partition.lower, v_partition.upper));
  end loop;
  for v_partition in select p.* from workq._partitions('workq.attempt') p where p.upper < v_now - v_retention loop
    return query select * from workq._drop_partition('workq.attempt', v_partition.relation, 'select false');
  end loop;

  for v_sequence in
    select c.relname::text
    from pg_class c
    where c.relnamespace = 'workq'::regnamespace and c.relkind = 'S'
      and c.relname ~ '^queue_[0-9]+_' and not exists (
        select from workq.queue q where q.id = split_part(c.relname, '_', 2)::int)
  loop
    begin
      execute format('drop sequence workq.%I', v_sequence);
    exception when lock_not_available or undefined_table then
      continue;
    end;
    return query select 'sequence dropped', v_sequence;
  end loop;
end;
$$;
comment on function workq.maintain is 'makes partitions ahead of time and drops those that are past every retention (the last day always stays) and hold nothing unfinished; says what it did. Waits for a lock for 100 ms at most, and leaves the rest for the next time. Safe to run from anywhere, at any time, many at once; every minute or so, in a transaction of its own. 0A000 under REPEATABLE READ or SERIALIZABLE';
