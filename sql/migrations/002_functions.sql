-- The functions: sql/functions as it is now. A release puts its snapshot here.
{{ .functions }}
