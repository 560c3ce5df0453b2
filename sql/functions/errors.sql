-- What is said when a call cannot be done. Every error has a SQLSTATE, the name in DETAIL and the
-- way out in HINT. A message names no value, so that it can be grouped by its text.
-- These helpers never return: they keep the raising out of the functions that are called often.

create or replace function workq._no_queue(queue text)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  if queue is null then
    perform workq._invalid('queue', null, 'name a queue');
  end if;
  raise exception 'queue does not exist' using errcode = 'WQ001',
    detail = format('queue is %s', workq._shown(queue)),
    hint = 'create it with workq.create_queue(...), or see workq.queues() for those there are';
end;
$$;
comment on function workq._no_queue is 'raises WQ001, or 22023 for null';

create or replace function workq._invalid(argument text, value text, range text)
returns boolean
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  raise exception 'argument out of range' using errcode = '22023',
    detail = format('%s is %s', argument, workq._shown(value)),
    hint = range;
end;
$$;
comment on function workq._invalid is 'raises 22023: DETAIL names the argument and its value, HINT the range; says boolean so that it fits into a condition';

create or replace function workq._not_built(argument text)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  raise exception 'argument is not supported yet' using errcode = '0A000',
    detail = format('%s was given', argument),
    hint = 'leave it out, or null';
end;
$$;
comment on function workq._not_built is 'raises 0A000 for an argument that this version does not carry out yet: it is never ignored';

create or replace function workq._need_read_committed(what text)
returns void
language plpgsql
stable
as $$
#variable_conflict use_column
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'needs read committed' using errcode = '0A000',
      detail = format('%s was called, transaction_isolation is %s', what, current_setting('transaction_isolation')),
      hint = 'call it outside of a transaction, or begin one with isolation level read committed';
  end if;
end;
$$;
comment on function workq._need_read_committed is 'raises 0A000 under REPEATABLE READ and SERIALIZABLE, whose snapshot is older than the locks that are taken';

create or replace function workq._shown(value text)
returns text
language sql
immutable
as $$
  select case
    when value is null then 'null'
    when length(value) > 100 then quote_literal(left(value, 100)) || '… (' || length(value) || ' characters)'
    else quote_literal(value)
  end;
$$;
comment on function workq._shown is 'a value as an error shows it: quoted, at most 100 characters';

-- Errors, results and reports are kept up to 64 KiB.

create or replace function workq._cut(value text)
returns text
language sql
immutable
return case
  when octet_length(value) <= 65536 then value
  when octet_length(value) = length(value) then left(value, 65536) || '… (cut)'
  else left(value, 16384) || '… (cut)'  -- of four bytes each, at most
end;
comment on function workq._cut is 'a text of at most 64 KiB (65536 bytes), and a mark when it was cut';

create or replace function workq._cut_json(value jsonb)
returns jsonb
language sql
stable
return case
  when octet_length(value::text) > 65536
    then jsonb_build_object('cut', true, 'bytes', octet_length(value::text), 'head', left(value::text, 16384))
  else value
end;
comment on function workq._cut_json is 'a JSON value of at most 64 KiB (65536 bytes); a larger one becomes {"cut": true, "bytes": n, "head": its first 16384 characters}';
