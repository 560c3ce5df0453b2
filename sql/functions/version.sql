create or replace function workq.version()
returns text
language sql
immutable
security definer
set search_path = pg_catalog, pg_temp
as $$ select '0.1.0' $$;
comment on function workq.version is 'the version of the installed functions: major.minor.patch';
