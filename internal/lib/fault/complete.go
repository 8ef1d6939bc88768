package fault

import (
	"fmt"
	"reflect"
	"strings"
)

// Complete returns an error that names every nil field of deps, the struct of dependencies that a constructor takes.
// Fields whose tag has `deps:"optional"` may be nil; their comments say what that means. Complete checks only pointers,
// interfaces, functions, maps and channels.
//
// A constructor that returns this error cannot be called with a forgotten dependency. Otherwise, a missing function
// field could silently disable a limit.
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
