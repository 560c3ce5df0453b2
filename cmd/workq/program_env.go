package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/pgworkq/workq/client"
)

const headerPrefix = "WORKQ_HEADER_"

// cleanEnv drops the headers of another message: we may run below another worker. The other
// variables are always set anew.
func cleanEnv(env []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, headerPrefix) })
}

// messageEnv tells a program about its message.
func messageEnv(m *client.Message) []string {
	maxAttempts := ""
	if m.MaxAttempts != nil {
		maxAttempts = strconv.Itoa(*m.MaxAttempts)
	}
	env := []string{
		"WORKQ_QUEUE=" + m.Queue,
		"WORKQ_ID=" + strconv.FormatInt(m.ID, 10),
		"WORKQ_LEASE=" + strconv.FormatInt(m.Lease, 10),
		"WORKQ_ATTEMPT=" + strconv.Itoa(m.Attempt),
		"WORKQ_MAX_ATTEMPTS=" + maxAttempts,
		"WORKQ_KIND=" + m.Kind,
		"WORKQ_CONTENT_TYPE=" + m.ContentType,
		"WORKQ_HEADERS=" + string(m.Headers),
	}
	var headers map[string]json.RawMessage
	_ = json.Unmarshal(m.Headers, &headers) // PostgreSQL made it
	for name, value := range headers {
		var s string
		if json.Unmarshal(value, &s) != nil {
			s = string(value)
		}
		env = append(env, headerPrefix+envName(name)+"="+s)
	}
	slices.Sort(env[len(env)-len(headers):])
	return env
}

// envName makes a name that every shell takes.
func envName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(name))
}
