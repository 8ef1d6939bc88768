package tracing

import (
	"fmt"
	"strconv"
	"time"
)

// The types of a request, with the names of the OTLP JSON encoding: ids are hexadecimal, and 64-bit integers are
// strings.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	span struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		ParentID   string     `json:"parentSpanId,omitempty"`
		Name       string     `json:"name"`
		Kind       Kind       `json:"kind"`
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Links      []link     `json:"links,omitempty"`
		Status     status     `json:"status"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Int    *string `json:"intValue,omitempty"`
		Bool   *bool   `json:"boolValue,omitempty"`
	}
	link struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	}
	status struct {
		Code    int    `json:"code,omitempty"` // 0: not set, 2: error
		Message string `json:"message,omitempty"`
	}
)

func (e *Exporter) encode(batch []Span) request {
	spans := make([]span, len(batch))
	for i, s := range batch {
		spans[i] = span{TraceID: s.Trace.String(), SpanID: s.ID.String(), ParentID: s.Parent.String(), Name: s.Name,
			Kind: s.Kind, Start: nanoseconds(s.Start), End: nanoseconds(s.End), Attributes: keyValues(s.Attributes)}
		for _, l := range s.Links {
			spans[i].Links = append(spans[i].Links, link{l.Trace.String(), l.Span.String()})
		}
		if s.Error != "" {
			spans[i].Status = status{2, s.Error}
		}
	}
	return request{[]resourceSpans{{
		Resource: resource{keyValues([]Attribute{{"service.name", "postrider"}, {"service.version", e.c.Version},
			{"host.name", e.c.Host}})},
		ScopeSpans: []scopeSpans{{scope{"github.com/postrider/postrider", e.c.Version}, spans}},
	}}}
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func keyValues(all []Attribute) []keyValue {
	out := make([]keyValue, len(all))
	for i, a := range all {
		out[i].Key = a.Key
		switch v := a.Value.(type) {
		case bool:
			out[i].Value.Bool = &v
		case int:
			n := strconv.Itoa(v)
			out[i].Value.Int = &n
		default:
			text := fmt.Sprint(v)
			out[i].Value.String = &text
		}
	}
	return out
}
