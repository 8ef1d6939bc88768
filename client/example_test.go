package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/postrider/postrider/client"
)

// An email is sent, and its state is read.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.New(os.Getenv("POSTRIDER_URL"), os.Getenv("POSTRIDER_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	sent, err := c.Emails.Send(ctx, client.SendEmail{
		From:    "Acme <hello@acme.example>",
		To:      []string{"ada@example.org"},
		Subject: "Your order",
		Text:    new("Thank you for your order."),
	}, client.WithIdempotencyKey("order-1815"))
	if err != nil {
		log.Fatal(err)
	}
	email, err := c.Emails.Get(ctx, sent.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(email.Subject, "to", email.To[0])
	// Output: Your order to ada@example.org
}

// An iterator reads all pages of a list.
func ExampleDomainsService_All() {
	ctx := context.Background()
	c, err := client.New(os.Getenv("POSTRIDER_URL"), os.Getenv("POSTRIDER_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	for domain, err := range c.Domains.All(ctx, client.Page{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(domain.Name, domain.Status)
	}
	// Output: acme.example verified
}

// A change names only the fields to change. Null removes a value.
func ExampleField() {
	ctx := context.Background()
	c, err := client.New(os.Getenv("POSTRIDER_URL"), os.Getenv("POSTRIDER_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	made, err := c.Contacts.Create(ctx, client.CreateContact{Email: "grace@example.org", FirstName: new("Grace"),
		LastName: new("Hopper")})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Contacts.Update(ctx, made.ID, client.UpdateContact{
		FirstName: client.Set("Rear Admiral"),
		LastName:  client.Null[string](),
	})
	if err != nil {
		log.Fatal(err)
	}
	contact, err := c.Contacts.Get(ctx, made.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*contact.FirstName, contact.LastName == nil)
	// Output: Rear Admiral true
}

// The error of a refused request names the field and says what is wrong.
func ExampleError() {
	c, err := client.New(os.Getenv("POSTRIDER_URL"), os.Getenv("POSTRIDER_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Topics.Create(context.Background(), client.CreateTopic{Name: "News", DefaultSubscription: "maybe"})
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refused.Status, refused.Name, refused.Field)
	}
	// Output: 422 validation_error default_subscription
}
