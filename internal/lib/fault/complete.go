package fault

import (
	"fmt"
	"reflect"
	"strings"
)

// Complete returns an error that names every nil field of deps, the struct of dependencies that a constructor takes.
// Fields whose tag has `deps:"optional"` may be nil; their comments say what that means. Only pointers, interfaces,
// functions, maps and channels are looked at.
//
// A constructor that calls it refuses to start with a forgotten dependency. Otherwise a limit that is enforced through a
// function field would be off without notice.
func Complete(deps any) error {
	v := reflect.ValueOf(deps)
	var missing []string
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch v.Field(i).Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Func, reflect.Map, reflect.Chan:
			if v.Field(i).IsNil() && field.Tag.Get("deps") != "optional" {
				missing = append(missing, field.Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s lacks %s", v.Type(), strings.Join(missing, ", "))
}
