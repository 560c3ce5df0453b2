package tests

import (
	"strings"
	"testing"
)

// catalog is everything that an installation made, as text that can be compared: the objects of
// the schema workq and the version table, with owners, privileges and comments, without oids.
func catalog(t *testing.T, db execer) string {
	t.Helper()
	var lines []string
	for _, part := range catalogQueries {
		lines = append(lines, column[string](t, db, part)...)
	}
	return strings.Join(lines, "\n")
}

var catalogQueries = []string{
	`select format('function %s owner %s acl %s comment %s: %s', p.oid::regprocedure, pg_get_userbyid(p.proowner),
	   p.proacl, obj_description(p.oid, 'pg_proc'), pg_get_functiondef(p.oid))
	 from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.prokind in ('f', 'p') order by p.oid::regprocedure::text`,
	`select format('relation %s kind %s owner %s acl %s options %s bound %s comment %s', c.oid::regclass, c.relkind,
	   pg_get_userbyid(c.relowner), c.relacl, c.reloptions, pg_get_expr(c.relpartbound, c.oid), obj_description(c.oid, 'pg_class'))
	 from pg_class c where c.relnamespace = 'workq'::regnamespace or c.oid = 'public.workq_schema_version'::regclass
	 order by c.oid::regclass::text collate "C"`,
	`select format('column %s.%s %s %s not null %s default %s identity %s storage %s comment %s', c.oid::regclass, a.attname, a.attnum,
	   format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attstorage, col_description(c.oid, a.attnum))
	 from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
	 left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
	 where c.relkind in ('r', 'p', 'c', 'v') and (c.relnamespace = 'workq'::regnamespace or c.oid = 'public.workq_schema_version'::regclass)
	 order by c.oid::regclass::text collate "C", a.attnum`,
	`select format('index %s', pg_get_indexdef(i.indexrelid))
	 from pg_index i join pg_class c on c.oid = i.indrelid
	 where c.relnamespace = 'workq'::regnamespace or c.oid = 'public.workq_schema_version'::regclass
	 order by i.indexrelid::regclass::text collate "C"`,
	`select format('constraint %s %s on %s: %s', n.conname, n.contype, n.conrelid::regclass, pg_get_constraintdef(n.oid))
	 from pg_constraint n left join pg_class c on c.oid = n.conrelid
	 where n.connamespace = 'workq'::regnamespace or c.oid = 'public.workq_schema_version'::regclass
	 order by n.conrelid::regclass::text collate "C", n.conname collate "C"`,
	`select format('trigger %s', pg_get_triggerdef(g.oid)) from pg_trigger g join pg_class c on c.oid = g.tgrelid
	 where c.relnamespace = 'workq'::regnamespace and not g.tgisinternal order by 1`,
	`select format('type %s kind %s acl %s comment %s labels %s', y.oid::regtype, y.typtype, y.typacl, obj_description(y.oid, 'pg_type'),
	   (select string_agg(e.enumlabel, ',' order by e.enumsortorder) from pg_enum e where e.enumtypid = y.oid))
	 from pg_type y where y.typnamespace = 'workq'::regnamespace order by y.oid::regtype::text collate "C"`,
	`select format('sequence %s %s', q.seqrelid::regclass, to_jsonb(q) - 'seqrelid' - 'seqtypid')
	 from pg_sequence q join pg_class c on c.oid = q.seqrelid where c.relnamespace = 'workq'::regnamespace
	 order by q.seqrelid::regclass::text collate "C"`,
	`select format('schema %s owner %s acl %s comment %s', n.nspname, pg_get_userbyid(n.nspowner), n.nspacl, obj_description(n.oid, 'pg_namespace'))
	 from pg_namespace n where n.nspname = 'workq'`,
	`select format('version %s', v.version) from public.workq_schema_version v`,
}
