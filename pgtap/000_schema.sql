-- What an installation makes, at the coarsest.
begin;
select plan(3);

select has_schema('workq');
select has_table('public', 'workq_schema_version', 'tern keeps its version beside the schema');
select schema_owner_is('workq', (select pg_get_userbyid(datdba) from pg_database where datname = current_database()),
  'the ordinary role that migrated owns the schema');

select * from finish();
rollback;
