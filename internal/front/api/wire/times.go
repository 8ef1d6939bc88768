package wire

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// DBTime is a time in PostgreSQL's format, such as 2023-10-06 23:47:56.678+00. The zero time is written as null.
type DBTime time.Time

// MarshalJSON omits trailing zeros in the fractional seconds, as PostgreSQL does.
func (t DBTime) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02 15:04:05.999999+00"`), nil
}

// Schema describes the time format in the OpenAPI document.
func (DBTime) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Examples: []any{"2026-04-08 00:11:13.110779+00"}}
}

// ISOTime is a UTC time in ISO 8601 format with milliseconds.
type ISOTime time.Time

// MarshalJSON writes fractional seconds with three digits.
func (t ISOTime) MarshalJSON() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// Schema describes the time format in the OpenAPI document.
func (ISOTime) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Format: "date-time", Examples: []any{"2026-04-08T00:11:13.110Z"}}
}
