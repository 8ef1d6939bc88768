package db

import (
	"fmt"
	"strconv"
)

// Names holds the names of a column whose values are small numbers in the database, such as the state of an email. A
// number never changes its meaning, because rows keep it. A new name gets a number that no name has had.
type Names[T ~string] struct {
	column  string
	names   map[int16]T
	numbers map[T]int16
}

// NewNames returns the names of a column. The column is named in errors, for example "emails.last_event".
func NewNames[T ~string](column string, numbers map[T]int16) *Names[T] {
	n := &Names[T]{column, make(map[int16]T, len(numbers)), numbers}
	for name, number := range numbers {
		if other, twice := n.names[number]; twice {
			panic(fmt.Sprintf("db: %d of %s stands for %q and for %q", number, column, name, other))
		}
		n.names[number] = name
	}
	return n
}

// Number returns the number of a name. It panics if the name has none, so that no row gets a wrong number: the panic is
// the error of the update in which Number is called. Names of users' requests are checked before.
func (n *Names[T]) Number(name T) int16 {
	number, err := n.Find(name)
	if err != nil {
		panic(err)
	}
	return number
}

// Find is like Number, but returns an error for a name without a number.
func (n *Names[T]) Find(name T) (int16, error) {
	number, ok := n.numbers[name]
	if !ok {
		return 0, fmt.Errorf("%q has no number for the column %s", name, n.column)
	}
	return number, nil
}

// SQL returns the number of a name as the text of a literal.
func (n *Names[T]) SQL(name T) string { return strconv.Itoa(int(n.Number(name))) }

// Name returns the name of a number that was read from the column.
func (n *Names[T]) Name(number int16) (T, error) {
	name, ok := n.names[number]
	if !ok {
		return "", fmt.Errorf("the column %s has the number %d, which this release does not know; a newer release may have "+
			"written it", n.column, number)
	}
	return name, nil
}
