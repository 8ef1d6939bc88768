package api

import (
	"crypto/sha256"
	"fmt"
	"regexp"
)

// exampleID returns the UUID that stands for an object in the examples of the API reference. The name of a path
// parameter, such as email_id, stands for the same object in all examples.
func exampleID(name string) string {
	text := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
	return "019a4c1e-" + text[:4] + "-7" + text[4:7] + "-8" + text[7:10] + "-" + text[10:22]
}

// exampleParams has the values of path parameters that are names or addresses in the examples.
var exampleParams = map[string]string{"contact": "ada@example.net", "template": "order-confirmation",
	"suppression": "gone@example.net", "event": "order.shipped", "version": "1", "other": "2",
	"webhook_event_id": "msg_019a4c1e5d0c7b1f8a2c3d4e5f607182"}

// exampleParam returns the value of a path parameter in the examples.
func exampleParam(name string) string {
	if v := exampleParams[name]; v != "" {
		return v
	}
	return exampleID(name)
}

var idPlaceholder = regexp.MustCompile(`\{([a-z_]+_id)\}`)

// fillIDs replaces placeholders such as {email_id} by the UUIDs of the examples.
func fillIDs(text string) string {
	return idPlaceholder.ReplaceAllStringFunc(text, func(s string) string { return exampleID(s[1 : len(s)-1]) })
}
