package main

import (
	"strings"

	"github.com/spf13/pflag"
)

// sqlType is the annotation of a flag that is an argument of a function: its type there.
const sqlType = "sql type"

// sqlFlag makes a flag that is an argument of a function, with the same name but for - and _, and
// of that type. It has no default: a flag that is not given is not sent.
func sqlFlag(fs *pflag.FlagSet, name, typ, usage string) {
	short := ""
	if name == "max-messages" {
		short = "n"
	}
	switch {
	case typ == "boolean":
		fs.BoolP(name, short, false, usage)
	case typ == "int" || typ == "bigint":
		fs.Int64P(name, short, 0, usage)
	case typ == "float8":
		fs.Float64P(name, short, 0, usage)
	case strings.HasSuffix(typ, "[]"):
		fs.StringSliceP(name, short, nil, usage)
	default:
		fs.VarP(&sqlText{kind: typ}, name, short, usage)
	}
	_ = fs.SetAnnotation(name, sqlType, []string{typ}) // fails for a flag that is not there
}

// sqlText is the value of a flag that PostgreSQL reads.
type sqlText struct {
	value string
	kind  string // for the help
}

func (t *sqlText) String() string     { return t.value }
func (t *sqlText) Set(s string) error { t.value = s; return nil }
func (t *sqlText) Type() string       { return t.kind }
