package samples

import (
	"strconv"
	"strings"
)

// goTypes has the Go types of fields whose values are lists or objects, in the official client. Other lists are lists
// of strings.
var goTypes = map[string]string{
	"tags":       "[]resend.Tag",
	"template":   "&resend.EmailTemplate",
	"headers":    "map[string]string",
	"properties": "map[string]any",
	"segments":   "[]string",
	"topics":     "[]resend.TopicSubscriptionUpdate",
}

// goText prints a value as Go code for the official client. The literal of a struct has no type in front of it.
func goText(v value, depth int, isStruct bool) string {
	return goValue(v, "", depth, isStruct)
}

func goValue(v value, typ string, depth int, isStruct bool) string {
	switch v.kind {
	case '"':
		if strings.ContainsAny(v.text, `"\`) && !strings.Contains(v.text, "`") {
			return "`" + v.text + "`"
		}
		return strconv.Quote(v.text)
	case '0':
		return v.text
	case 't':
		return "true"
	case 'f':
		return "false"
	case 'n':
		return "nil"
	}
	isMap := strings.HasPrefix(typ, "map[")
	parts := make([]string, len(v.items))
	multi := isStruct && depth <= 1 && v.kind == '{'
	for i, item := range v.items {
		switch {
		case v.kind == '[' && item.kind == '{':
			parts[i] = goValue(item, "", depth+1, true)
		case v.kind == '[':
			parts[i] = goValue(item, "", depth+1, false)
		default:
			parts[i] = goField(v.keys[i], item, depth, isMap)
		}
		multi = multi || v.kind == '[' && item.kind == '{' && len(v.items) > 1 || strings.Contains(parts[i], "\n")
	}
	if v.kind == '[' && typ == "" {
		typ = "[]string"
		if len(v.items) > 0 && v.items[0].kind == '{' {
			typ = "[]*resend.SendEmailRequest"
		}
	}
	if !multi {
		return typ + "{" + strings.Join(parts, ", ") + "}"
	}
	inner := "\n" + strings.Repeat("\t", depth+1)
	return typ + "{" + inner + strings.Join(align(parts, v.kind == '{'), ","+inner) + ",\n" +
		strings.Repeat("\t", depth) + "}"
}

// goField prints a field of a struct or an entry of a map.
func goField(key string, item value, depth int, isMap bool) string {
	if isMap {
		return strconv.Quote(key) + ": " + goValue(item, "", depth+1, false)
	}
	typ := goTypes[key]
	if key == "variables" {
		if typ = "map[string]any"; item.kind == '[' {
			typ = "[]*resend.TemplateVariable"
		}
	}
	isStruct := item.kind == '{' && !strings.HasPrefix(typ, "map[")
	return goName(key) + ": " + goValue(item, typ, depth+1, isStruct)
}

// align puts spaces after the names of fields, as gofmt does. Fields with values of several lines are not aligned.
func align(parts []string, fields bool) []string {
	if !fields {
		return parts
	}
	for begin := 0; begin < len(parts); {
		end, width := begin, 0
		for ; end < len(parts) && !strings.Contains(parts[end], "\n"); end++ {
			width = max(width, strings.Index(parts[end], ": "))
		}
		for i := begin; i < end; i++ {
			at := strings.Index(parts[i], ": ")
			parts[i] = parts[i][:at+1] + strings.Repeat(" ", width-at) + parts[i][at+1:]
		}
		begin = end + 1
	}
	return parts
}

// goName returns the name of a JSON field in the official client: segment_id becomes SegmentId.
func goName(key string) string {
	name := camel(key)
	return strings.ToUpper(name[:1]) + name[1:]
}
