-- What is installed: version.
begin;
select plan(2);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('version', '() -> text i')
) f (name, signature);
select matches(workq.version(), '^[0-9]+\.[0-9]+\.[0-9]+$', 'major.minor.patch');

select * from finish();
rollback;
