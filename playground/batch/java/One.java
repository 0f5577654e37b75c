public class One { public static void main(String[] args) { System.out.println("One"); } }
